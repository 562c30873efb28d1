"""Where words may stand on the command line."""

from __future__ import annotations

import os
import subprocess

import pytest

from cli.main import common_options_last
from support.gateways import command


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("limits list", "limits list"),
        ("--admin http://x limits list", "limits list --admin http://x"),
        ("--admin=http://x -o json limits get rocketmq t", "limits get rocketmq t --admin=http://x -o json"),
        ("-o json limits get rocketmq -- -odd", "limits get rocketmq -o json -- -odd"),
        ("limits list --admin http://x", "limits list --admin http://x"),
        ("--help", "--help"),
        ("--admin", "--admin"),
    ],
)
def test_common_options_may_stand_before_the_verb(given: str, meant: str) -> None:
    assert common_options_last(given.split()) == meant.split()


@pytest.mark.parametrize("words", ["version", "limits list --help", "completion bash"])
@pytest.mark.parametrize(("to", "why"), [(">&-", "it is closed"), ("> /dev/full", "No space left on device")])
def test_output_that_cannot_be_written_is_one_line_and_exit_1(words: str, to: str, why: str) -> None:
    done = subprocess.run(["sh", "-c", f'"$@" {words} {to}', "sh", *command()], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (1, f"sluice: the output cannot be written: {why}{os.linesep}")
