"""Options that several verbs of `sluice quotas` have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from gateway.cli.quota_rails import Rails


def rail_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How much may change at once; the command gets `rails: Rails`."""
    defaults = Rails()

    @click.option(
        "--max-changed", type=click.FloatRange(0, 100), default=defaults.changed_share * 100, show_default=True,
        envvar="SLUICE_QUOTAS_MAX_CHANGED",
        help="Guard rail: percent of the live quotas that may change; beyond it nothing is published.",
    )  # fmt: skip
    @click.option(
        "--max-removed", type=click.FloatRange(0, 100), default=defaults.removed_share * 100, show_default=True,
        envvar="SLUICE_QUOTAS_MAX_REMOVED",
        help="Guard rail: percent of the live quotas that may be removed; beyond it nothing is published.",
    )  # fmt: skip
    @click.option(
        "--max-total", type=click.FloatRange(0), default=defaults.total_share * 100, show_default=True,
        envvar="SLUICE_QUOTAS_MAX_TOTAL",
        help="Guard rail: percent by which the sum of all rates may fall; beyond it nothing is published.",
    )  # fmt: skip
    @click.option(
        "--max-ratio", type=click.FloatRange(1), default=defaults.ratio, show_default=True,
        envvar="SLUICE_QUOTAS_MAX_RATIO",
        help="Rail of each topic: factor by which its quota may grow or shrink; one beyond it is held there, the rest is published.",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(*args: Any, max_changed: float, max_removed: float, max_total: float, max_ratio: float, **kwargs: Any) -> Any:
        return command(*args, rails=Rails(max_changed / 100, max_removed / 100, max_total / 100, max_ratio), **kwargs)

    return wrapped


def set_parameters(given: Iterable[str]) -> dict[str, Any]:
    """The parameters of `--set NAME=VALUE`, by name; raises click.UsageError."""
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.UsageError(f"--set {each}: write it like --set target_refused_ppm=2000")
        found[name.replace("-", "_")] = value
    return found
