"""`sluice listeners`: what each takes, who fits in, and whether its broker is there."""

from __future__ import annotations

from typing import Any

import pytest


def listener(**more: Any) -> dict[str, Any]:
    return {
        "name": "rabbit",
        "protocol": "amqp",
        "bind": "0.0.0.0:5672",
        "upstream": "127.0.0.1:5673",
        "upstream_reachable": True,
        "upstream_error": None,
        "tls": {"certificate_expires": "2027-01-01T00:00:00Z", "peer_verified": False, "handshakes_failed": {}},
        "upstream_tls": None,
        "accept_proxy_protocol": True,
        "trusted_proxies": ["10.0.0.5"],
        "send_proxy_protocol": "v2",
        "seats": {"taken": 7, "most": 400},
        "max_connections": None,
        "max_connections_per_address": 20,
        "max_connections_per_user": None,
        "max_connection_rate": "30/s",
        "connections_refused": {"max_connections": 2, "max_connection_rate": 3},
        "judged": {"queued": 900, "inline": 12, "bypassed": 3, "bypassed_messages": 77},
        "broker_busy": {"timeout_clean_queue": 40, "service_not_available": 1},
        **more,
    }


def test_shows_guards_caps_seats_and_refusals(sluice: Any, admin: Any) -> None:
    admin.topics = [listener()]
    head, line = sluice("listeners").out.splitlines()
    for name in (
        "tls",
        "proxy",
        "seats",
        "of",
        "per address",
        "per user",
        "rate",
        "refused",
        "queued",
        "inline",
        "unjudged",
        "broker busy",
        "upstream tls",
        "proxy sent",
        "state",
    ):
        assert name in head
    assert line.split() == [
        "rabbit", "amqp", "0.0.0.0:5672", "on", "accepted", "7", "400", "20", "-", "30/s", "5", "900", "12", "77", "-", "41",
        "127.0.0.1:5673", "-", "v2", "reachable",
    ]  # fmt: skip


@pytest.mark.parametrize("verb", ["listeners", "audit", "topics"])
def test_verbs_that_only_list_also_take_the_word_list(sluice: Any, admin: Any, verb: str) -> None:
    admin.topics = [listener(topic="orders", action="POST /v1/drain")]
    bare = sluice(verb)
    assert (bare.code, len(bare.out.splitlines())) == (0, 2)
    assert [sluice(verb, "list"), sluice(verb, "-o", "table", "list")] == [bare, bare]
    wrong = sluice(verb, "lst")
    assert (wrong.code, "'lst'" in wrong.err, "list" in wrong.err.replace("lst", "")) == (2, True, True)


def test_says_why_a_broker_is_not_there(sluice: Any, admin: Any) -> None:
    admin.topics = [listener(upstream_reachable=False, upstream_error="Connection refused")]
    assert sluice("listeners").out.splitlines()[1].endswith("unreachable: Connection refused")
    admin.topics = [listener(upstream_reachable=None)]
    assert sluice("listeners").out.splitlines()[1].split()[-2:] == ["v2", "-"]


def test_a_listener_that_lets_clients_without_tls_in_says_so(sluice: Any, admin: Any) -> None:
    admin.topics = [listener(tls={"peer_verified": False, "mode": "permissive"})]
    assert "permissive" in sluice("listeners").out.splitlines()[1].split()


def test_a_certificate_that_is_verified_says_so(sluice: Any, admin: Any) -> None:
    admin.topics = [listener(tls={"peer_verified": True}, upstream_tls={"peer_verified": True})]
    line = sluice("listeners").out.splitlines()[1]
    assert "client certificates" in line
    assert "verified" in line.split()


def test_a_cap_says_what_it_is_now_and_why(sluice: Any, admin: Any) -> None:
    whole = {"rule": "broker", "limit": "20000/s", "now": "20000/s", "reason": None}
    admin.topics = [listener(caps=[whole])]
    assert " 20000/s " in sluice("listeners").out.splitlines()[1]
    admin.topics = [listener(caps=[whole | {"now": "16000/s", "reason": "blocked"}])]
    assert " 16000/s of 20000/s (blocked) " in sluice("listeners").out.splitlines()[1]


def test_of_several_addresses_each_has_its_state(sluice: Any, admin: Any) -> None:
    upstreams = [
        {"address": "a:5672", "state": "down", "preferred": False, "error": "Connection refused", "held_seconds": 0},
        {"address": "b:5672", "state": "held", "preferred": False, "error": "it answers again", "held_seconds": 12.0},
        {"address": "c:5672", "state": "up", "preferred": True, "error": None, "held_seconds": 0},
        {"address": "d:5672", "state": "up", "preferred": False, "error": None, "held_seconds": 0},
        {"address": "e:5672", "state": "untried", "preferred": False, "error": None, "held_seconds": 0},
    ]
    admin.topics = [listener(upstream="a:5672, b:5672, c:5672, d:5672, e:5672", upstreams=upstreams)]
    shown = sluice("listeners", "-o", "csv").out
    states = [
        "a:5672 unreachable: Connection refused", "b:5672 answers again, held for 12", "c:5672 in use",
        "d:5672 stands by", "e:5672 untried",
    ]  # fmt: skip
    assert [state for state in states if state not in shown] == []
