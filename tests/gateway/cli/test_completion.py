"""Completion as the shell asks for it: verbs, options, and keys of the running gateway."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.gateways import command

TOPICS = [
    {"protocol": "amqp", "topic": "%2F/orders/order.created"},
    {"protocol": "amqp", "topic": "%2F/orders/order.paid"},
    {"protocol": "amqp", "topic": "shop/mails/"},
    {"protocol": "rocketmq", "topic": "orders"},
]


def completed(tmp_path: Path, words: str, environment: dict[str, str] | None = None) -> list[str]:
    """What bash is told may stand in place of the last word of `words`."""
    typed = words.split(" ")
    asked = {"_SLUICE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(typed) - 1)}
    done = subprocess.run(
        command(), env={**os.environ, **(environment or {}), **asked}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "some"),
    [
        ("sluice w", {"why"}),
        ("sluice su", {"support-bundle"}),
        ("sluice config ", {"show", "schema", "diff"}),
        ("sluice init --pro", {"--protocol"}),
        ("sluice init --protocol a", {"amqp"}),
    ],
)
def test_verbs_and_options_complete(tmp_path: Path, words: str, some: set[str]) -> None:
    assert some <= set(completed(tmp_path, words))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sluice why r", ["rocketmq"]),
        ("sluice why rocketmq o", ["orders"]),
        ("sluice why amqp ", ["/", "shop"]),
        ("sluice why amqp / o", ["orders"]),
        ("sluice why amqp / orders order.", ["order.created", "order.paid"]),
        ("sluice why kafka ", []),
    ],
)
def test_keys_complete_from_the_topics_of_the_gateway(tmp_path: Path, admin: Any, words: str, offered: list[str]) -> None:
    protocol = words.split()[2]
    admin.topics = [topic for topic in TOPICS if topic["protocol"] == protocol]
    assert completed(tmp_path, words) == offered


def test_without_a_gateway_nothing_is_offered_and_nothing_said(tmp_path: Path) -> None:
    assert completed(tmp_path, "sluice why amqp ", {"SLUICE_ADMIN": "http://127.0.0.1:1"}) == []
