"""Namespaces of RocketMQ names. The expectations are what NamespaceUtil.getNamespaceFromResource of RocketMQ 5.3.3 says (2026-11)."""

from __future__ import annotations

import pytest

from limiter.rules.namespaces import namespace_of
from support.cases import in_one_loop


@in_one_loop
@pytest.mark.parametrize(
    ("topic", "namespace"),
    [
        ("orders", None),
        ("shop%orders", "shop"),
        ("%RETRY%g", None),
        ("%RETRY%shop%g", "shop"),
        ("%DLQ%g", None),
        ("%DLQ%shop%g", "shop"),
        ("a%b%c", "a"),
        ("shop%", "shop"),
        ("%orders", None),
        ("%", None),
        ("%RETRY%", None),
        ("%RETRY%%x", None),
        ("%RETRY%%DLQ%x", None),
        ("%retry%g", None),
        ("%RETRY%shop%g+shop%orders", "shop"),
        ("shop%c_REPLY_TOPIC", "shop"),
        ("rmq_sys_x%y", None),
        ("CID_RMQ_SYS_x%y", None),
        ("", None),
    ],
)
def test_the_namespace_of_a_topic(topic: str, namespace: str | None) -> None:
    assert namespace_of(topic) == namespace
