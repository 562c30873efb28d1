"""`sluice run`, `check`, `config`, `token`: verbs that need no running gateway."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.configured import by_line, config_file, configured, load_settings, setting_options, take_flags
from cli.exits import CommandError
from cli.output import clean, emit, print_status
from cli.verb import Remote, Verb, VerbGroup, output_option, remote
from common.failures import FAILED, INVALID, OK, USAGE
from common.figures import pluralise
from config.command_line import CommandLine
from config.listener_protocols import LISTENER_PROTOCOLS

if TYPE_CHECKING:
    from config import Settings


RUN_EXAMPLE: Final = """\
sluice run -c config/sluice.yaml
sluice run
sluice run --protocol amqp --bind :5672 --upstream 127.0.0.1:5673 --limit 500/s"""


@click.command(cls=Verb, example=RUN_EXAMPLE)
@click.option("--protocol", metavar="NAME", help=f"Without a file: {', '.join(LISTENER_PROTOCOLS)}.")
@click.option("--bind", metavar="HOST:PORT", help="Without a file: where clients connect; `:5672` is on all addresses.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="HOST:PORT,...",
    help="Without a file: where the broker is; or several addresses of a cluster, the preferred one first.",
)
@click.option(
    "--limit", "limits", multiple=True, metavar="RATE", help="Without a file: each topic's limit, 500/s or 5MiB/s, or both: 500/s,5MiB/s."
)
@setting_options
@click.pass_context
def run(
    ctx: click.Context, /, protocol: str | None, bind: str | None, upstreams: tuple[str, ...], limits: tuple[str, ...],
    config: str | None, file: str | None, **options: Any,
) -> None:  # fmt: skip
    """Run a gateway until SIGTERM. SIGHUP reads the configuration again.

    With --protocol, --bind and --upstream no file is needed, and none is read.
    """
    from cli.first_steps import first_steps
    from control_plane.main import run as run_gateway
    from gateway.event_loop.heap import bound_free_heap

    bound_free_heap()  # before the settings, whose files are read on threads
    flags = take_flags(options)
    listener = {"--protocol": protocol, "--bind": bind, "--upstream": any(upstreams)}
    if any(listener.values()) or limits:
        if config or file:
            raise CommandError(USAGE, "--protocol, --bind, --upstream and --limit are for a run without a file; or change them in the file")
        missing = [name for name, value in listener.items() if not value]
        if missing:
            raise CommandError(USAGE, f"a run without a file needs {' and '.join(missing)} too", [RUN_EXAMPLE.splitlines()[-1]])
        given: str | CommandLine = CommandLine(protocol or "", bind or "", upstreams, limits, Path.cwd())
    else:
        given = config_file(config, file)
    ctx.exit(run_gateway(load_settings(given, flags), first_steps))


@click.command(cls=Verb, example="sluice check config/sluice.yaml --strict\nsluice check -c config/sluice.yaml")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@configured
@click.pass_context
def check(ctx: click.Context, settings: Settings, strict: bool) -> None:  # noqa: FBT001  -- click's way
    """Check a configuration without starting a gateway: exit 0, or 3 with the line, column and remedy of each mistake."""
    from config import lint

    warnings = lint(settings)
    for warning in warnings:
        location = str(warning.location)
        click.echo(by_line(str(warning).replace(f"{location}: ", f"{location}: {'error' if strict else 'warning'}: ", 1)), err=True)
    if warnings and strict:
        raise CommandError(INVALID, f"{pluralise(len(warnings), 'warning')}, and --strict")
    counts = (pluralise(len(settings.listeners), "listener"), pluralise(len(settings.rules), "rule"), pluralise(len(warnings), "warning"))
    print_status(f"{settings.file}: good; {', '.join(counts)}")
    ctx.exit(OK)


@click.group(cls=VerbGroup, example="sluice config show -c config/sluice.yaml --origin")
def config() -> None:
    """Show the configuration in force, or its schema."""


@config.command(example="sluice config show -c config/sluice.yaml --origin\nsluice config show -c config/sluice.yaml -o json")
@click.option("--origin", is_flag=True, help="Show where each value comes from: file and line, environment, flag, or default.")
@output_option
@configured
def show(settings: Settings, origin: bool, form: str) -> None:  # noqa: FBT001  -- click's way
    """Show the effective settings: a flag wins over the environment, that over the file, that over the default.

    Without --origin the output is YAML that can be read back, but for URLs: what may be secret in one is shown as "…".
    """
    described = settings.describe()
    if origin:
        rows = [{"setting": path, "value": value, "from": str(settings.origin(path))} for path, value in leaves(described, "")]
        if form == "table":  # as the file takes it, not as `yes` and `no`
            rows = [{**row, "value": str(row["value"]).lower()} if isinstance(row["value"], bool) else row for row in rows]
        emit(form, rows)
    else:
        described.pop("rules_file", None)  # its rules are shown
        emit("yaml" if form == "table" else form, described)


def leaves(value: object, path: str) -> list[tuple[str, object]]:
    """Every single value with its path, as `listeners[0].bind`."""
    if isinstance(value, dict) and value:
        return [leaf for name, inner in value.items() for leaf in leaves(inner, f"{path}.{name}" if path else name)]
    if isinstance(value, list) and value:
        return [leaf for number, inner in enumerate(value) for leaf in leaves(inner, f"{path}[{number}]")]
    return [] if value in ({}, []) else [(path, value)]


DIFF_EXAMPLE: Final = """\
sluice config diff config/sluice.yaml
sluice config diff sluice.yaml next.yaml --exit-code"""


@config.command("diff", example=DIFF_EXAMPLE)
@click.argument("file", required=False, type=click.Path())
@click.argument("other", required=False, type=click.Path())
@click.option("--exit-code", is_flag=True, help="Exit with 1 where there is a difference.")
@remote
@click.pass_context
def diff_(ctx: click.Context, /, remote: Remote, file: str | None, other: str | None, exit_code: bool) -> None:  # noqa: FBT001
    """Show how a file differs from what the running gateway has in force, or how two files differ.

    Without FILE it is the one that `sluice run` would take. Of a gateway's URLs only scheme, host and port are compared: it does not tell
    more. Live changes are not in it: `sluice limits list`, `sluice rules list`.
    """
    from config.difference import differences, hidden_differences

    hidden: list[str] = []
    first = load_settings(config_file(None, file), {})
    if other is not None:
        second = load_settings(other, {})
        old, new, what = first.describe(), second.describe(), f"{file} and {other}"
        hidden = hidden_differences(first, second)
    else:
        client = remote.client
        running = client.ask("GET", "/v1/config").body
        old = running.get("settings", running) if isinstance(running, dict) else {}
        new, what = first.describe(), f"{client.url} and {file or first.file}"
    for each in (old, new):
        each.pop("rules_file", None)  # its rules are compared
    lines = differences(old, new) + hidden
    if remote.form != "table":
        remote.emit(lines)
    for line in lines if remote.form == "table" else ():
        click.echo(clean(line))
    print_status(f"{what}: {pluralise(len(lines), 'difference')}" if lines else f"{what}: no difference")
    if lines and other is None:
        print_status("in force after `sluice reload`, or a restart: `sluice reload --dry-run` tells which")
    ctx.exit(FAILED if lines and exit_code else OK)


@config.command(example="sluice config schema > config/sluice.schema.json\nsluice config schema --rules > config/limits.schema.json")
@click.option("--rules", is_flag=True, help="The schema of the rules file instead.")
def schema(rules: bool) -> None:  # noqa: FBT001  -- click's way
    """Print the JSON Schema of the configuration, for editors."""
    from config.schema import rules_schema, schema, text

    click.echo(text(rules_schema() if rules else schema()), nl=False)
