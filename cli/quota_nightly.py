"""`sluice quotas nightly`: the command. What it does: `quota_night.py`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from cli.client import AdminClient, token_for
from cli.exits import CommandError, spark_part
from cli.interrupts import sigterm_as_interrupt
from cli.output import emit, print_status
from cli.quota_options import parameter_options, rail_options
from cli.verb import DEFAULT_ADMIN, Verb, output_option, timeout_option
from common.failures import FAILED, INTERRUPTED, USAGE, Failure
from spark_jobs.nights.gateways import ReadGateway, read_gateway
from spark_jobs.nights.night import GO_ON, Nightly, Options, Result, as_night_code, open_storages
from spark_jobs.nights.rails import Rails

if TYPE_CHECKING:
    from spark_jobs.parameters import Parameters

OF_ONE_RUN: Final = {"date", "again", "dry_run", "report", "form", "timeout"}  # options
EXAMPLE: Final = (
    "sluice quotas nightly --log /srv/access-log --state /srv/quota-state --shadow-nights 3\n"
    "sluice quotas nightly --log s3a://bucket/log --state s3a://bucket/quotas --gateway http://127.0.0.1:9181,one.token "
    "--gateway http://127.0.0.1:9182,two.token"
)


@click.command(cls=Verb, example=EXAMPLE)
@click.option("--log", required=True, metavar="URL", help="The access log: a folder, or a URL that Spark reads.")
@click.option("--state", required=True, metavar="URL", help="The daily states and nights: a folder, or a URL that Spark writes.")
@click.option("--date", metavar="YYYY-MM-DD", help="Last day to learn from.  [default: yesterday, in the time zone]")
@click.option(
    "--gateway", "--admin", "gateways", multiple=True, metavar="URL[,TOKENFILE]", envvar="SLUICE_GATEWAYS",
    help="Admin API to publish at (or SLUICE_GATEWAYS, with spaces between); may be repeated.  [default: SLUICE_ADMIN, or this machine's]",
)  # fmt: skip
@click.option(
    "--token-file", envvar="SLUICE_TOKEN_FILE", type=click.Path(path_type=Path),
    help="File with the bearer token of gateways that have none of their own (or SLUICE_TOKEN_FILE; or SLUICE_TOKEN itself).",
)  # fmt: skip
@timeout_option
@click.option("--shadow-nights", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="Try the first N nights' quotas without enforcing them.")  # fmt: skip
@click.option("--shadow-again", is_flag=True, help="Try the quotas first although a trial was finished, and its quotas taken back since.")
@click.option(
    "--return-margin", type=click.FloatRange(0, 100), default=5.0, show_default=True, metavar="PERCENT",
    help="Published quotas go back to those before where they refuse this much more than the backtest promises, in percent of messages.",
)  # fmt: skip
@click.option("--no-return", is_flag=True, help="Never put the quotas before back.")
@click.option("--max-would-refuse", type=click.FloatRange(0, 100), default=5.0, show_default=True, metavar="PERCENT",
              help="Stop where those in force refused more, and twice yesterday's maximum; not where tonight's do less.")  # fmt: skip
@rail_options
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE", help="Also write the HTML report here.")
@click.option("--allow-partial", is_flag=True, help="Compute although a gateway's log is missing; the others are scaled up.")
@click.option("--exclude", multiple=True, metavar="FROM/TO:TOPIC", help="Leave an incident out of what is learned; may be repeated.")
@click.option("--pins", metavar="FILE", help="Quotas set by hand (pins.yaml).")
@parameter_options
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--driver-memory", metavar="SIZE", help="Heap of Spark's driver, such as 4g.  [default: by the log's size]")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Setting of Spark; may be repeated.")
@click.option("--again", is_flag=True, help="Compute and publish the night anew, though it was published.")
@click.option("--dry-run", is_flag=True, help="Compute and report, and publish nothing.")
@output_option
@click.pass_context
def nightly(
    ctx: click.Context,
    /,
    *,
    log: str,
    state: str,
    date: str | None,
    gateways: tuple[str, ...],
    token_file: Path | None,
    timeout: float,
    return_margin: float,
    no_return: bool,
    max_would_refuse: float,
    rails: Rails,
    report: Path | None,
    given: dict[str, Any],
    form: str,
    **more: Any,
) -> None:
    """The whole night: compute missed days and yesterday, check, publish at all gateways or none, report. A second run changes nothing.

    Exit 0 published, or nothing to do; 1 failed; 2 usage; 3 stopped by a rail or the backtest; 4 a gateway is away, refuses the token or
    was changed meanwhile; 5 insufficient input, such as a gateway whose log is missing; 130 interrupted. But for 0 nothing was published.
    """
    with spark_part():
        from spark_jobs.commands import compute
        from spark_jobs.days import Day, yesterday
        from spark_jobs.errors import EnvironmentFaultError
        from spark_jobs.storage.location import Location
    try:
        parameters = check_parameters(given, more["exclude"], more["pins"], more["driver_memory"], more["conf"])
        zone = parameters.time_zone
        day = Day(date, zone) if date else yesterday(zone)
        if report is not None and not report.absolute().parent.is_dir():
            raise ValueError(f"--report {report}: there is no folder {report.absolute().parent}; make it, or name another")
        options = Options(
            Location.of("log", log), Location.of("state", state), day.date, zone, parameters.remember_days,
            return_margin=None if no_return else return_margin / 100, max_would_refuse=max_would_refuse / 100, rails=rails,
            compute={**given, **{name: more.pop(name) for name in ("exclude", "pins", "driver_memory", "conf")}},
            command=(*rebuild_command(ctx), "--date", day.date, "--again"),
        )  # fmt: skip
    except ValueError as error:
        raise CommandError(USAGE, str(error)) from None
    try:
        with sigterm_as_interrupt():
            reached = read_all(gateways or (os.environ.get("SLUICE_ADMIN") or DEFAULT_ADMIN,), token_file, timeout)
            result = night(replace(options, **more), reached, compute)
    except KeyboardInterrupt:
        raise CommandError(INTERRUPTED, f"interrupted; {GO_ON}") from None
    except Failure as error:
        raise CommandError(as_night_code(error).code, str(error), error.lines, error.status) from None
    except (OSError, EnvironmentFaultError) as error:
        raise CommandError(FAILED, str(error)) from None
    place = None if result.report is None else result.report.shown
    print_status(result.outcome)
    if place is not None:
        print_status(f"report: {place}")
    if form != "table":
        emit(form, {"date": options.date, "code": result.code, "outcome": result.outcome, "report": place})
    if report is not None and result.html:
        try:
            report.write_bytes(result.html)
        except OSError as error:  # the night is over, however it went
            print_status(f"{report}: {error.strerror}; the report is at {place}")
    ctx.exit(result.code)


def rebuild_command(ctx: click.Context) -> list[str]:
    """The command with its options, also those out of the environment, but for those of one run. No option has a token itself."""
    words = ["sluice", "quotas", "nightly"]
    for option in ctx.command.params:
        assert option.name is not None
        given = ctx.get_parameter_source(option.name) in {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}
        if not given or option.name in OF_ONE_RUN:
            continue
        value = ctx.params[option.name]
        for each in value if isinstance(value, tuple) else (value,):
            words += [option.opts[0]] if isinstance(each, bool) else [option.opts[0], str(each)]
    return words


def check_parameters(
    given: Mapping[str, Any], exclude: Sequence[str], pins: str | None, memory: str | None, conf: Sequence[str]
) -> Parameters:
    """The parameters. Everything that the computation would refuse later is refused before anything is asked or written.

    Raises ValueError that names the option, CommandError where a file of pins cannot be read.
    """
    from spark_jobs.log.exclusions import Exclusion
    from spark_jobs.method.pins import read_pins
    from spark_jobs.parameters import Parameters
    from spark_jobs.sizing import parse_conf_options, parse_memory_option
    from spark_jobs.storage.location import Location

    for text in exclude:
        Exclusion.of(text)
    if memory is not None:
        parse_memory_option(memory)
    parse_conf_options(conf)
    place = None if pins is None else Location.of("pins", pins)
    if place is not None and place.is_local:
        try:
            read_pins(place.local.read_bytes())
        except OSError as error:
            raise CommandError(FAILED, f"--pins {place.shown}: {error.strerror}") from None
        except ValueError as error:
            raise CommandError(FAILED, f"{error}; it is {place.shown}") from None
    return Parameters.of(given)


def night(options: Options, gateways: list[ReadGateway], compute: Any) -> Result:
    with open_storages(options) as storages:
        return Nightly(options, gateways, compute, storages, print_status).run()


def read_all(places: Sequence[str], token_file: Path | None, timeout_s: float) -> list[ReadGateway]:
    """The gateways at `URL[,TOKENFILE]` each."""
    known: dict[tuple[str, str], dict[str, Any]] = {}
    found = []
    for place in places:
        url, _, own = place.partition(",")
        client = AdminClient(url, token_for(url, Path(own) if own else token_file, os.environ), timeout_s)
        found.append(read_gateway(client, known))
    return found
