"""`sluice fleet` at gateways that answer as one likes: what is no gateway, what a dry run says, quotas between two revisions."""

from __future__ import annotations

from typing import Any

import pytest

SET = ("limits", "set", "rocketmq", "orders", "--messages", "70/s", "--reason", "incident 12", "--dry-run")


def answer(admin: Any, name: str, digest: str) -> None:
    admin.answers["GET /v1/status"] = (200, {"name": name, "version": "1", "ready": True, "connections": 1, "revision": 1})
    admin.answers["GET /v1/live-changes"] = (200, {"digest": digest, "changes": {}})


@pytest.mark.parametrize(
    ("status", "live"),
    [
        ([], {"digest": "one", "changes": {}}),
        ("a page", {"digest": "one", "changes": {}}),
        ({"name": "old"}, {}),
        ({"name": "old"}, {"digest": "one"}),
        ({"name": "odd"}, None),
        ({"name": "odd"}, []),
    ],
)
def test_what_answers_and_is_no_gateway_is_away(sluice: Any, admin: Any, second_admin: Any, status: Any, live: Any) -> None:
    """Its answer was a traceback for all of them, `apply` at the others too."""
    answer(admin, "first", "one")
    second_admin.answers["GET /v1/status"] = (200, status)
    second_admin.answers["GET /v1/live-changes"] = (200, live)
    named = ("-g", admin.url, "-g", second_admin.url)
    shown = sluice("fleet", "status", *named, "-o", "json")
    assert (shown.code, [row["in_sync"] for row in shown.json]) == (4, [True, None])
    assert shown.json[1]["away"] == "what answers there is no sluice gateway, or one that is too old"
    tried = sluice("fleet", "apply", *named, *SET)
    assert (tried.code, f"{second_admin.url}: AWAY, would not get it" in tried.err) == (4, True)


def test_a_dry_run_counts_those_that_would_get_the_change(sluice: Any, admin: Any, second_admin: Any) -> None:
    """It said "2 other gateways would get the same", exit 0, of one that is away and one with changes of its own."""
    answer(admin, "first", "one")
    answer(second_admin, "second", "another")
    named = ("-g", admin.url, "-g", second_admin.url)
    tried = sluice("fleet", "apply", *named, "-g", "http://127.0.0.1:1", *SET)
    assert tried.code == 4
    for said in ("0 other gateways would get the same", "http://127.0.0.1:1: AWAY, would not get it", "second", "LEFT AS IT IS"):
        assert said in tried.err
    assert sluice("fleet", "apply", *named, *SET).code == 6
    answer(second_admin, "second", "one")
    tried = sluice("fleet", "apply", *named, *SET)
    assert (tried.code, "1 other gateway would get the same" in tried.err) == (0, True)


@pytest.mark.parametrize(("target", "code"), [("quotas", 6), ("quotas/shadow", 6), ("limits/rocketmq/quotas", 0)])
def test_a_rollback_over_a_publication_of_quotas_changes_nothing(
    sluice: Any, admin: Any, second_admin: Any, target: str, code: int
) -> None:
    """It took the quotas back at the reference alone, and said that all had it."""
    for each in (admin, second_admin):
        answer(each, "one", "same")
    preview = {"dry_run": True, "would_be_revision": 9, "changes": [{"target": target, "before": {}, "after": None}]}
    admin.answers["POST /v1/history/3:rollback"] = (200, preview)
    done = sluice("fleet", "rollback", "3", "--yes", "-g", admin.url, "-g", second_admin.url)
    assert done.code == code
    asked = [request.query.get("dry_run") for request in admin.writes()]
    assert asked == (["1"] if code else ["1", None])
    assert ("quotas were published since revision 3" in done.err) == bool(code)
    assert second_admin.writes() == []
