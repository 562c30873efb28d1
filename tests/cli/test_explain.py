"""`sluice limits get` as a screen, what a candidate would have done as a sentence, and `sluice rules promote`."""

from __future__ import annotations

from typing import Any

import pytest

from cli.explain import describe_hold, describe_trial, describe_trial_beside, describe_use, details, limit, moment, ways

KEY = "GET /v1/limits/rocketmq/orders"
CANDIDATE = {"messages": "300/s", "messages_burst": 300}
COUNTS = {
    "would_admit": 9888,
    "would_refuse": 412,
    "since": "2026-11-21T12:01:00.000Z",
    "clients": [{"client": f"10.0.0.{number}", "refused": 50 - number} for number in (7, 9, 11, 12)],
}
HOLDS = {
    "per": "topic", "thing": "orders", "origin": "override", "rule": "order-like", "place": "limits.yaml:9",
    "limit": {"messages": "5/s", "messages_burst": 10, "bytes": "1MiB/s", "bytes_burst": 2097152},
    "action": "reject", "reply": "flow_control", "mode": "enforce", "open_for": "1s", "max_delay": "1s", "fallback": "delay",
    "algorithm": "token_bucket", "by": "ops", "at": "2026-11-21T12:00:00.000Z", "reason": "incident 12", "expires": None,
    "candidate": CANDIDATE,
    "usage": {
        "fill": 0.43, "breaker": "closed", "admitted": 12345, "refused": 67, "held": 0, "shadow_refused": 0, "received_per_second": 6.5,
        "refused_per_second": 1.5, "last_refused": "2026-11-21T12:00:03.000Z", "candidate": COUNTS,
    },
}  # fmt: skip
NINE = {"messages": "9/s", "messages_burst": 9}
EXPLANATION = [
    {
        "operation": "produce", "per": "topic", "holds": HOLDS, "rules": 3, "more": 2,
        "lost": [{"origin": "default", "rule": "all", "place": "limits.yaml:3", "limit": NINE, "reason": "why"}],
        "missed": [],
    },
    {
        "operation": "produce", "per": "client", "holds": None, "rules": 1, "more": 0, "lost": [],
        "missed": [{"rule": "vips", "place": "limits.yaml:14", "reason": "is for client 10.0.0.0/8, and no client is given"}],
    },
]  # fmt: skip
SCREEN = """\
rocketmq orders

produce per topic: 5/s (burst 10), 1MiB/s (burst 2MiB)  of order-like (limits.yaml:9)
  for   orders
  from  override, changed live by ops 2026-11-21T12:00:00.000Z: incident 12
  how   mode enforce, token_bucket, breaker 1s, action reject, reply flow_control, fallback delay
  now   6.5/s received, 1.5/s refused; 43 % full, breaker closed; 12,345 passed, 67 refused, 0 had to wait; last over it 2026-11-21 12:00:03
  tried 300/s (burst 300): would have refused 412 of 10,300 since 2026-11-21 12:01:00, of 10.0.0.7, 10.0.0.9, 10.0.0.11 and 1 more
  not   all (limits.yaml:3), default, 9/s (burst 9): why
  and 2 more

produce per client: nothing holds (1 rule)
  not   vips (limits.yaml:14): is for client 10.0.0.0/8, and no client is given
"""


@pytest.fixture(autouse=True)
def another_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are of another day than the tests'."""
    from datetime import datetime

    from cli import explain

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Later:
            return cls(2026, 11, 30, tzinfo=tz)

    monkeypatch.setattr(explain, "datetime", Later)


def test_a_key_is_explained_in_one_screen(sluice: Any, admin: Any) -> None:
    admin.answers[KEY] = (200, {"protocol": "rocketmq", "topic": "orders", "levels": [HOLDS], "explanation": EXPLANATION})
    ran = sluice("limits", "get", "rocketmq", "orders", "--client", "10.0.0.7", "--user", "shop", "--operation", "produce")
    assert (ran.code, ran.out, ran.err) == (0, SCREEN, "")
    (asked,) = admin.requests
    assert asked.query == {"explain": "1", "client": "10.0.0.7", "user": "shop", "operation": "produce"}


def test_a_key_on_which_nothing_holds_is_explained_too(sluice: Any, admin: Any) -> None:
    admin.answers[KEY] = (200, {"protocol": "rocketmq", "topic": "orders", "levels": [], "explanation": EXPLANATION[1:]})
    ran = sluice("limits", "get", "rocketmq", "orders")
    assert "produce per client: nothing holds (1 rule)\n" in ran.out
    assert ran.err == "no limit holds for this key\n"


def test_json_has_the_explanation_and_the_version(sluice: Any, admin: Any) -> None:
    admin.answers[KEY] = (200, {"levels": [HOLDS], "explanation": EXPLANATION})
    assert sluice("limits", "get", "rocketmq", "orders", "-o", "json").json["explanation"] == EXPLANATION


def test_names_of_strangers_steer_no_terminal(sluice: Any, admin: Any) -> None:
    admin.answers[KEY] = (200, {"topic": "a\x1b[2Jb", "levels": [HOLDS], "explanation": EXPLANATION})
    assert "\x1b" not in sluice("limits", "get", "rocketmq", "orders").out


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (None, "300/s (burst 300): nothing judged yet"),
        ({"would_admit": 0, "would_refuse": 0, "since": None, "clients": []}, "300/s (burst 300): nothing judged yet"),
        (
            {"would_admit": 7, "would_refuse": 0, "since": "2026-11-30T12:01:00Z", "clients": []},
            "300/s (burst 300): would have refused 0 of 7 since 12:01:00",
        ),
        (
            {"would_admit": 7, "would_refuse": 1, "since": "2026-11-30T12:01:00Z", "clients": [{"client": "10.0.0.7", "refused": 1}]},
            "300/s (burst 300): would have refused 1 of 8 since 12:01:00, of 10.0.0.7",
        ),
    ],
)
def test_a_sentence_tells_how_many_messages_a_candidate_would_have_refused(usage: dict[str, Any] | None, said: str) -> None:
    assert describe_trial(CANDIDATE, usage) == said
    assert describe_trial(None, usage) is None


LIVE = {"messages": "100/s", "messages_burst": 100}


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ({"candidate": CANDIDATE}, "300/s (burst 300): nothing judged yet"),
        (
            {"candidate": CANDIDATE, "candidate_here": LIVE, "limit": LIVE, "origin": "override", "usage": {"candidate": COUNTS}},
            "300/s (burst 300): would change nothing here, the live change holds over it",
        ),
        (
            {"candidate": CANDIDATE, "candidate_here": LIVE, "limit": LIVE, "origin": "quota+hour"},
            "300/s (burst 300): would change nothing here, the published quota holds over it",
        ),
        (
            {"candidate": CANDIDATE, "candidate_here": LIVE | {"bytes": "5kB/s"}, "limit": LIVE, "origin": "override"},
            "300/s (burst 300); here, as the live change holds over it, 100/s (burst 100), 5kB/s: nothing judged yet",
        ),
    ],
)
def test_a_candidate_is_never_the_live_change_that_holds_over_it(level: dict[str, Any], said: str) -> None:
    assert describe_trial_beside(level) == said


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ({"per": "listener", "thing": ""}, ["  for   each listener apart", "  now   depends on the listener: add --listener"]),
        ({"per": "client", "thing": "10.0.0.7"}, ["  for   10.0.0.7", "  now   not used yet"]),
        ({"per": "rule", "thing": ""}, ["  for   all of them together", "  now   not used yet"]),
        ({"per": "connection", "thing": ""}, ["  for   each connection apart", "  now   not used yet"]),
    ],
)
def test_details_name_the_owner_of_the_bucket(level: dict[str, Any], said: list[str]) -> None:
    assert [line for line in details(level) if line.startswith(("  for", "  now"))] == said


def test_a_live_change_where_no_rule_is() -> None:
    assert describe_hold({"limit": {"messages": "5/s", "messages_burst": 5}, "rule": "unruled", "place": ""}) == "5/s (burst 5)  of no rule"


def test_a_topics_part_of_a_cap_and_a_cap_that_is_tightened() -> None:
    assert list(ways({**HOLDS, "weight": 3.0, "protected": True}))[-2:] == ["weight 3", "protected"]
    assert list(ways({**HOLDS, "cost": {"step": "4KiB", "declare": 10}}))[-1] == "a message costs 1 per 4KiB, a declare costs 10"
    assert list(ways({**HOLDS, "cost": {"copy": 2, "declare": 10}}))[-1] == "a copy costs 2, a declare costs 10"
    assert not {"weight 1", "protected"} & set(ways({**HOLDS, "weight": 1.0, "protected": False}))
    tightened = {"messages": "16000/s", "messages_burst": 16000}
    said = describe_use({"fill": 0.1, "breaker": "closed", "cap_now": tightened, "cap_reason": "blocked"})
    assert "; tightened to 16000/s (burst 16000) (blocked); " in said


def test_a_rate_that_follows_a_backlog() -> None:
    said = describe_use({"fill": 1, "breaker": "closed", "rate_now": {"messages": "80/s", "messages_burst": 8}})
    assert "; 80/s (burst 8) by the backlog; " in said


def test_limits_and_moments_in_words() -> None:
    assert limit({}) == "unlimited"
    assert limit({"messages": "0/s", "messages_burst": 0}) == "0/s (burst 0)"
    assert limit({"messages": "5/s", "warm_up": "10s"}) == "5/s, warm after 10s"
    assert moment("soon") == "soon"


def test_rules_list_shows_candidates(sluice: Any, admin: Any) -> None:
    admin.rules = {"orders": {"name": "orders", "candidate": CANDIDATE, "candidate_usage": COUNTS}, "plain": {"name": "plain"}}
    head, tried_, plain = sluice("rules", "list").out.splitlines()
    assert "candidate" in head
    assert "would have refused 412 of 10,300" in tried_
    assert plain.split()[0] == "plain"
    assert "refused" not in plain


def test_promote_reads_then_writes_against_what_it_read(sluice: Any, admin: Any) -> None:
    admin.rules = {"orders": {"name": "orders", "limit": {"messages": "500/s"}, "candidate": CANDIDATE, "candidate_usage": COUNTS}}
    dry = sluice("rules", "promote", "orders", "--dry-run")
    assert dry.code == 0
    assert dry.err.endswith("dry run, nothing is changed; would make the candidate of rule orders its limit\n")
    assert "would have refused 412 of 10,300" in dry.err
    assert admin.rules["orders"]["limit"] == {"messages": "500/s"}
    ran = sluice("rules", "promote", "orders", "--reason", "quiet")
    assert (ran.code, admin.rules["orders"]["limit"]) == (0, CANDIDATE)
    assert ran.err.endswith("the candidate of rule orders is its limit now\n")
    write = admin.writes()[-1]
    assert (write.method, write.path, write.body) == ("POST", "/v1/rules/orders:promote", {"reason": "quiet"})
    assert write.headers["If-Match"].startswith('"')


def test_promoting_a_missing_rule_or_candidate_is_an_error(sluice: Any, admin: Any) -> None:
    ran = sluice("rules", "promote", "ordres")
    assert (ran.code, ran.err) == (7, "sluice: there is no rule ordres; did you mean `orders`?\n")
    ran = sluice("rules", "promote", "orders")
    assert (ran.code, "it has no candidate" in ran.err) == (6, True)
