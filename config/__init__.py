"""The configuration: YAML in, typed settings out, errors like a compiler's. `load` is the way in; `known_settings.py` has all settings."""

from config.command_line import CommandLine
from config.difference import diff, differences
from config.known_settings import (
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
from config.lints import lint
from config.load import load, load_rules, reload
from config.problems import ConfigError, ConfigProblem
from config.schema import rules_schema, schema
from config.settings import Settings
from config.tls_files import hops

__all__ = [
    "AccessLog", "Admin", "CommandLine", "ConfigError", "ConfigProblem", "Credit", "Disk", "Fleet", "FleetRedis", "Gateway", "Limiter",
    "Listener", "Log", "Memory", "Settings", "Token", "diff", "differences", "hops", "lint", "load", "load_rules", "reload", "rules_schema",
    "schema",
]  # fmt: skip
