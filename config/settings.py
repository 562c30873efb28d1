"""Settings: the whole configuration of one gateway, typed and immutable. `load` makes it, `ROOT` is its schema."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingType
from dataclasses import field
from pathlib import Path
from typing import Final

from common.records import dataclass
from config.command_line import CommandLine
from config.kinds import Only, PathName, Whole
from config.known_settings import (
    ACCESS_LOG,
    FLEET,
    PROBES,
    TRACING,
    WEBHOOKS,
    AccessLogSettings,
    AdminSettings,
    CreditSettings,
    DiskSettings,
    DrainSettings,
    FleetSettings,
    GatewaySettings,
    LimiterSettings,
    ListenerSettings,
    LogSettings,
    MemorySettings,
    ProbeSettings,
    QuotaSettings,
    SpoolSettings,
    TracingSettings,
    WebhookSettings,
)
from config.origins import SettingOrigins
from config.problems import NOWHERE, ConfigProblem, Problems, SourceLocation
from config.rules import RULES, RulesFile
from config.sections import ListOf, Section, setting
from limiter.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration of one gateway, checked. Immutable; a reload makes another."""

    version: int = setting(
        Only(Whole(0, 1_000_000, 1), 1, "this version of sluice reads version 1", "set version: 1"), 1, "Version of this file's format."
    )
    gateway: GatewaySettings = setting(Section(GatewaySettings), GatewaySettings(), "The gateway itself.")
    listeners: tuple[ListenerSettings, ...] = setting(
        ListOf(Section(ListenerSettings), "- {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}", least=1),
        (),
        "The addresses that clients connect to, and the brokers behind them.",
    )
    limiter: LimiterSettings = setting(Section(LimiterSettings), LimiterSettings(), "The limiter's own executor.")
    quotas: QuotaSettings = setting(Section(QuotaSettings), QuotaSettings(), "Published quotas, as this gateway applies them.")
    fleet: FleetSettings | None = setting(FLEET, None, "Gateways that share one set of limits; off: each limits by itself.")
    credit: CreditSettings = setting(Section(CreditSettings), CreditSettings(), "Credit between the stages of a connection.")
    memory: MemorySettings = setting(Section(MemorySettings), MemorySettings(), "Bounds on memory.")
    disk: DiskSettings = setting(Section(DiskSettings), DiskSettings(), "Bounds on the disk.")
    spool: SpoolSettings = setting(Section(SpoolSettings), SpoolSettings(), "Where messages wait whose rule says `action: spool`.")
    drain: DrainSettings = setting(Section(DrainSettings), DrainSettings(), "How a graceful stop ends connections.")
    admin: AdminSettings = setting(Section(AdminSettings), AdminSettings(), "The admin API, probes and metrics.")
    probes: ProbeSettings | None = setting(PROBES, None, "A second listener for probes and scrapes only, or off.")
    access_log: AccessLogSettings | None = setting(ACCESS_LOG, AccessLogSettings(), "The access log, or off.")
    webhooks: tuple[WebhookSettings, ...] = setting(
        WEBHOOKS, (), "Receivers of limits reached and recovered, in Alertmanager's JSON; 8 at most."
    )
    tracing: TracingSettings | None = setting(
        TRACING, None, "Spans of refused, delayed and spooled messages for an OpenTelemetry collector, or off."
    )
    log: LogSettings = setting(Section(LogSettings), LogSettings(), "The gateway's own log.")
    rules_file: Path | None = setting(PathName("limits.yaml"), None, "File with the rules, relative to this one; or `rules:` inline.")
    rules: tuple[Rule, ...] = setting(RULES, (), "The rules, where they are not in a file of their own.")

    # Not settings: how this was loaded.
    file: Path = Path()
    command_line: CommandLine | None = None  # instead of a file
    environ: MappingType[str, str] = field(default_factory=dict, repr=False)  # only what may be settings; may hold secrets
    flags: MappingType[str, str] = field(default_factory=dict, repr=False)  # may hold secrets, too
    origins: SettingOrigins = field(default_factory=SettingOrigins, repr=False)  # path -> where it was written
    sources: Problems = field(default_factory=Problems, repr=False, compare=False)  # the text of the files, for messages

    def make_problem(self, path: str, message: str, remedy: str) -> ConfigProblem:
        """A problem at the setting `path`, or at the nearest one around it that was written down."""
        inner = path
        while inner and not self.origins.get(inner, NOWHERE).line:
            inner = re.sub(r"(\.?[^.\[\]]+|\[[0-9]+\])$", "", inner)
        return self.sources.make_problem(self.origins.get(inner, SourceLocation(str(self.file))), path, message, remedy)

    def describe(self) -> dict[str, object]:
        """The effective configuration as it would be written, rules included. No secrets: tokens stand in files, URLs are cut short."""
        shown = ROOT.show(self)
        assert isinstance(shown, dict)
        return {**shown}

    def origin(self, path: str) -> SourceLocation:
        """Where the value at `path` comes from: file, line and column, environment, flag or default."""
        return self.origins.get(path, NOWHERE)


ROOT: Final = Section(Settings)
RULES_FILE: Final = Section(RulesFile)
