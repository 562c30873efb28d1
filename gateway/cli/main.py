"""The entry point of `sluice`: its verbs, and the exit code of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from gateway.cli.exits import FAILED, INTERRUPTED, OK, CommandError
from gateway.cli.verb import Group

# A verb's module is imported when the verb is used, so that `sluice run` starts fast.
VERBS: Final = {
    "run": "gateway.cli.local:run",
    "check": "gateway.cli.local:check",
    "config": "gateway.cli.local:config",
    "limits": "gateway.cli.limits:limits",
    "rules": "gateway.cli.rules:rules",
    "topics": "gateway.cli.live:topics",
    "connections": "gateway.cli.live:connections",
    "listeners": "gateway.cli.live:listeners",
    "history": "gateway.cli.history:history",
    "audit": "gateway.cli.history:audit",
    "quotas": "gateway.cli.quotas:quotas",
    "log": "gateway.cli.log:log",
    "reload": "gateway.cli.live:reload",
    "drain": "gateway.cli.live:drain",
    "status": "gateway.cli.live:status",
    "health": "gateway.cli.live:health",
    "token": "gateway.cli.local:token",
    "version": "gateway.cli.about:version",
    "completion": "gateway.cli.about:completion",
}


@click.group(cls=Group, late=VERBS, example="sluice run -c config/sluice.yaml\nsluice limits set rocketmq orders --messages 500/s")
def sluice() -> None:
    """A gateway that limits each topic on a RocketMQ or RabbitMQ broker, so that one flood does not hurt the others.

    \b
    --admin, --token-file, --timeout and -o may stand before or after the verb.
    Exit codes: 0 ok, 1 failed, 2 usage, 3 configuration invalid, 4 gateway unreachable, 5 not authorised,
    6 conflict, 7 not found, 8 refused by policy, 130 interrupted. The verbs of quotas list their own.
    """


COMMON: Final = ("--admin", "--token-file", "--timeout", "--output", "-o")  # each takes a value


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
    try:
        words = common_options_last(sys.argv[1:] if args is None else list(args))
        result = sluice.main(words, prog_name="sluice", standalone_mode=False)
        sys.stdout.flush()
    except CommandError as error:
        error.show()
        return error.code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("sluice: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it; click does the same while a verb runs
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return result if isinstance(result, int) else OK


if __name__ == "__main__":
    sys.exit(main())
