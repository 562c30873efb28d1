"""The configuration: YAML in, typed settings out, errors like a compiler's. `load` is the way in; `known_settings.py` has all settings."""

from config.command_line import CommandLine
from config.difference import diff, differences
from config.known_settings import (
    AccessLogSettings,
    AdminSettings,
    CreditSettings,
    DiskSettings,
    FleetRedis,
    FleetSettings,
    GatewaySettings,
    LimiterSettings,
    ListenerSettings,
    LogSettings,
    MemorySettings,
    TokenSettings,
)
from config.lints import lint
from config.load import load, load_rules, reload
from config.problems import ConfigError, ConfigProblem
from config.schema import rules_schema, schema
from config.settings import Settings
from config.tls_files import hops

__all__ = [
    "AccessLogSettings", "AdminSettings", "CommandLine", "ConfigError", "ConfigProblem", "CreditSettings", "DiskSettings", "FleetRedis",
    "FleetSettings", "GatewaySettings", "LimiterSettings", "ListenerSettings", "LogSettings", "MemorySettings", "Settings",
    "TokenSettings", "diff", "differences", "hops", "lint", "load", "load_rules", "reload", "rules_schema", "schema",
]  # fmt: skip
