"""`sluice quotas backtest`: what limits would have refused on past days, by the limiter's own code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.exits import CommandError, spark_part
from cli.output import Column, clean, emit, print_status
from cli.quota_report import snapshot_in
from cli.verb import Verb
from common import figures
from common.failures import FAILED, INVALID
from common.figures import pluralise
from limiter.quota_snapshot import Snapshot

if TYPE_CHECKING:
    from limiter.rules.rule import Rule
    from spark_jobs.backtest.result import Backtest

FORMS: Final = ("table", "json", "yaml")
RESERVED: Final = ("published", "yesterday_max", "oracle", "limits")  # names of contenders that are no file's
MAX_TOPIC: Final = 22  # characters; so that the table fits 80 columns
MAX_CLIENT: Final = 18


def number(value: float | None) -> str:
    return "-" if value is None else figures.count(value)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"


def shorten(text: str, most: int = MAX_TOPIC) -> str:
    text = clean(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _of(name: str, form: Callable[[Any], str]) -> Callable[[dict[str, Any]], object]:
    return lambda item: form(item.get(name))


def _unused(item: dict[str, Any]) -> object:
    return percent(item["unused"] / item["reserved"]) if item["reserved"] else "-"


def _worst(item: dict[str, Any]) -> object:
    return shorten(item["clients"][0]["client"], MAX_CLIENT) if item["clients"] else "-"


FIGURES: Final[list[Column]] = [
    ("offered", _of("offered", number)),
    ("refused", _of("refused", number)),
    ("share", _of("refused_share", percent)),
    ("blackout", lambda item: "-" if item["blackout"] is None else f"{item['blackout']} s"),
]
TOTALS: Final[list[Column]] = [
    ("limits", lambda item: shorten(item["contender"])),
    ("days", _of("days", number)),
    *FIGURES,
    ("reserved", _of("reserved", number)),
    ("unused", _unused),
]
TOPICS: Final[list[Column]] = [("topic", lambda item: shorten(item["topic"])), *FIGURES, ("worst client", _worst)]


def _file(_: click.Context, __: click.Parameter, value: str) -> str:
    if value not in FORMS and not value.endswith(".json"):
        raise click.BadParameter(f"{value!r} is neither of {', '.join(FORMS)} nor a file that ends in .json")
    return value


def _candidates(files: tuple[Path, ...]) -> dict[str, Snapshot]:
    """The snapshots by name: the file's stem, or its path where two have the same."""
    stems = [file.stem for file in files]
    found: dict[str, Snapshot] = {}
    for file in files:
        name = file.stem if stems.count(file.stem) == 1 and file.stem not in RESERVED else str(file)
        found[name] = snapshot_in(file, "--quotas: ")
    return found


def _rules(file: Path | None) -> tuple[Rule, ...] | None:
    from config import ConfigError, load_rules

    if file is None:
        return None
    try:
        return load_rules(file)
    except ConfigError as error:
        raise CommandError(
            INVALID, f"--limits: {file}: {pluralise(len(error.errors), 'error')}", [str(each) for each in error.errors]
        ) from None


@click.command(
    cls=Verb,
    example="sluice quotas backtest --log access-log --state daily --from 2026-11-14 --to 2026-11-20\n"
    "sluice quotas backtest --log access-log --from 2026-11-20 --limits limits.yaml --quotas quotas.json -o json\n"
    "sluice quotas backtest --quick --state daily --from 2026-11-01 --to 2026-11-20 --quotas quotas.json",
)
@click.option("--log", metavar="PATH|URL", help="Folder of the access log.")
@click.option("--state", metavar="PATH|URL", help="Folder of the daily states: adds what was published, yesterday's maximum, the oracle.")
@click.option("--from", "first", required=True, metavar="YYYY-MM-DD", help="First day.")
@click.option("--to", "last", metavar="YYYY-MM-DD", help="Last day.  [default: the first]")
@click.option("--quotas", "files", multiple=True, metavar="FILE", type=click.Path(path_type=Path), help="Snapshot to try. May be repeated.")
@click.option(
    "--limits", metavar="FILE", type=click.Path(path_type=Path), help="Rules to try, and to hold beneath all quotas: a limits.yaml."
)
@click.option("--quick", is_flag=True, help="Answer from the daily states alone: one token bucket per topic, no breaker.")
@click.option(
    "--raised", metavar="TIMES", type=click.FloatRange(0), default=0.0,
    help="Try quotas once more as a gateway raises them within the day, to so many times their rates at most, like 4.",
)  # fmt: skip
@click.option("--time-zone", default="UTC", show_default=True, metavar="NAME", help="Whose days these are, as with `compute`.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--driver-memory", metavar="SIZE", help="Java's heap on a local master, like 4g.  [default: by the largest day's log]")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Setting of Spark. May be repeated.")
@click.option("--topics", default=10, show_default=True, type=click.IntRange(0), help="Topics in the table, the most refused first.")
@click.option(
    "-o", "--output", "form", default="table", show_default=True, callback=_file, metavar="table|json|yaml|FILE.json",
    help="Form of the output; a file gets the JSON beside the table.",
)  # fmt: skip
@click.pass_context
def backtest(ctx: click.Context, /, files: tuple[Path, ...], limits: Path | None, topics: int, form: str, **given: Any) -> None:
    """What limits would have refused on past days: the log replayed through the limiter itself, or the daily states asked.

    Exit 0, 1 failed, 2 usage, 3 a file of limits or quotas is faulty, 5 no day could be played, 130 interrupted.
    """
    candidates, rules = _candidates(files), _rules(limits)
    with spark_part():
        from spark_jobs.backtest.commands import backtest as run
    first = given.pop("first")
    code, found = run(first, given.pop("last") or first, candidates=candidates, rules=rules, **given)
    if found is None:
        ctx.exit(code)
    show(found, form, topics)


def show(found: Backtest, form: str, topics: int) -> None:
    """Print the result; `form` is one of FORMS or a file."""
    document = found.to_json()
    if form in ("json", "yaml"):
        emit(form, document)
        return
    if form != "table":
        try:
            Path(form).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise CommandError(FAILED, f"{form}: {error.strerror}; nothing was written") from None
    emit("table", list(document["totals"].values()), TOTALS)
    last = list(document["totals"])[-1]
    worst = [each for each in document["topics"] if each["contender"] == last and each["refused"]][:topics]
    if worst:
        click.echo(f"\nMost refused by {clean(last)}:")
        emit("table", worst, TOPICS)
    how = "replayed from the log" if found.way == "exact" else "from the daily states, without breakers"
    print_status(f"{pluralise(len(found.days), 'day')} from {found.first} to {found.last}, {how}")
    for note in found.notes:
        print_status(f"note: {note}")
