"""The entry point of `sluice`: its verbs, and the exit code of a run."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from cli.exits import show
from cli.verb import VerbGroup
from common.failures import FAILED, INTERRUPTED, OK, Failure

GC_THRESHOLD: Final = 100_000  # new objects; `sluice run` has 60,000 when it serves, all of them to stay, and looked at them 90 times
UNWRITABLE: Final = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, errno.EDQUOT)

# A verb's module is imported when the verb is used, so that `sluice run` starts fast.
VERBS: Final = {
    "run": ".local:run",
    "init": ".init:init",
    "check": ".local:check",
    "config": ".local:config",
    "why": ".why:why",
    "limits": ".limits:limits",
    "rules": ".rules:rules",
    "topics": ".live:topics",
    "spool": ".spool:spool",
    "clients": ".clients:clients",
    "top": ".top:top",
    "events": ".events:events",
    "connections": ".live:connections",
    "listeners": ".live:listeners",
    "history": ".history:history",
    "fleet": ".fleet:fleet",
    "audit": ".audit:audit",
    "quotas": ".quotas:quotas",
    "log": ".log:log",
    "reload": ".live:reload",
    "drain": ".live:drain",
    "status": ".live:status",
    "health": ".live:health",
    "support-bundle": ".support_bundle:support_bundle",
    "token": ".token:token",
    "version": ".about:version",
    "completion": ".about:completion",
}


def show_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  -- click's way
    if value and not context.resilient_parsing:
        from gateway.build import build

        facts = build()
        click.echo(f"sluice {facts.version} ({facts.kind}, Python {facts.python})")
        context.exit()


@click.group(
    cls=VerbGroup,
    late=VERBS,
    context_settings={"help_option_names": ["-h", "--help"]},
    example="sluice run -c config/sluice.yaml\nsluice limits set rocketmq orders --messages 500/s",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show the version and exit.")
def sluice() -> None:
    """A gateway that limits each topic on a RocketMQ or RabbitMQ broker, so that one flood does not hurt the others.

    \b
    --admin, --token-file, --timeout and -o may stand before or after the verb.
    Exit codes: 0 ok, 1 failed, 2 usage, 3 configuration invalid, 4 gateway unreachable, 5 not authorised,
    6 conflict, 7 not found, 8 refused by policy, 130 interrupted. The verbs of quotas list their own.
    """


COMMON: Final = (
    "--admin",
    "--ca-file",
    "--client-certificate",
    "--client-key",
    "--token-file",
    "--timeout",
    "--output",
    "-o",
)  # each takes a value


def common_options_last(args: list[str]) -> list[str]:
    """`sluice --admin URL limits list` means `sluice limits list --admin URL`: common options may stand before the verb too."""
    leading: list[str] = []
    rest = list(args)
    while rest and rest[0].partition("=")[0] in COMMON:
        size = 1 if "=" in rest[0] else 2
        leading += rest[:size]
        rest = rest[size:]
    end = rest.index("--") if "--" in rest else len(rest)
    return rest[:end] + leading + rest[end:] if rest else leading


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. A mistake of the user never shows a traceback."""
    if sys.stdout is None:  # closed by whoever started this
        sys.stdout = Path(os.devnull).open()  # noqa: SIM115  -- not to be written to
    if args is None:  # the process is ours
        gc.set_threshold(GC_THRESHOLD)
    try:
        words = common_options_last(sys.argv[1:] if args is None else list(args))
        result = sluice.main(words, prog_name="sluice", standalone_mode=False)
        sys.stdout.flush()
    except Failure as error:
        show(error)
        return error.code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("sluice: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it; click does the same while a verb runs
        return _lose_output()
    except OSError as error:
        if error.errno not in UNWRITABLE and not isinstance(error, io.UnsupportedOperation):
            raise
        click.echo(f"sluice: the output cannot be written: {error.strerror or 'it is closed'}", err=True)
        return _lose_output()
    return result if isinstance(result, int) else OK


def _lose_output() -> int:
    """What is left of the output goes nowhere, or the interpreter would try once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
