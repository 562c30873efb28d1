"""The configuration: YAML in, typed settings out, errors like a compiler's. `load` is the way in; `known_settings.py` has all settings."""

from gateway.settings.command_line import CommandLine
from gateway.settings.difference import diff, differences
from gateway.settings.known_settings import (
    AccessLog,
    Admin,
    Credit,
    Disk,
    Fleet,
    FleetRedis,
    Gateway,
    Limiter,
    Listener,
    Log,
    Memory,
    Token,
)
from gateway.settings.lints import lint
from gateway.settings.load import load, load_rules, reload
from gateway.settings.problems import ConfigError, ConfigProblem
from gateway.settings.schema import rules_schema, schema
from gateway.settings.settings import Settings
from gateway.settings.tls_files import hops

__all__ = [
    "AccessLog", "Admin", "CommandLine", "ConfigError", "ConfigProblem", "Credit", "Disk", "Fleet", "FleetRedis", "Gateway", "Limiter",
    "Listener", "Log", "Memory", "Settings", "Token", "diff", "differences", "hops", "lint", "load", "load_rules", "reload", "rules_schema",
    "schema",
]  # fmt: skip
