"""Options that several verbs of `sluice quotas` have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from spark_jobs.nights.rails import Rails


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


# option of the command line -> the parameter of `spark_jobs.parameters` that it sets
_NAMED: Final = {
    "target_refused_ppm": "target_refused_ppm",
    "capacity": "capacity_messages",
    "capacity_bytes": "capacity_bytes",
    "time_zone": "time_zone",
}


def parameter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What the quotas are computed with; the command gets `given: dict[str, Any]`, the parameters that were named."""

    @click.option("--target-refused-ppm", type=click.IntRange(1, 500_000), metavar="N",
                  help="So many of a million messages may be refused, over all topics and nights.  [default: 1000]")  # fmt: skip
    @click.option("--capacity", type=click.IntRange(1), metavar="N",
                  help="All quotas together are at most N messages/s: shared by weighted max-min.  [default: no bound]")  # fmt: skip
    @click.option("--capacity-bytes", type=click.IntRange(1), metavar="N",
                  help="The same in bytes/s.  [default: no bound]")  # fmt: skip
    @click.option("--time-zone", metavar="ZONE", help="Whose days and weekdays count, such as Europe/Berlin.  [default: UTC]")
    @click.option("--set", "parameters", multiple=True, metavar="NAME=VALUE",
                  help="Any parameter of the computation, e.g. half_life_days=14. May be repeated.")  # fmt: skip
    @functools.wraps(command)
    def wrapped(*args: Any, parameters: tuple[str, ...], **kwargs: Any) -> Any:
        named = {parameter: kwargs.pop(option) for option, parameter in _NAMED.items()}
        given = {name: value for name, value in named.items() if value is not None}
        for name, value in set_parameters(parameters).items():
            if name in given:
                raise click.UsageError(f"--set {name}={value}: there is an option for it in the same command; give one of the two")
            given[name] = value
        return command(*args, given=given, **kwargs)

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
