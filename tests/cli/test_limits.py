"""`sluice limits` and `rules`: read, then write only what was read."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

from typing import Any

import pytest


def test_set_reads_then_writes_against_what_it_read(sluice: Any, admin: Any) -> None:
    ran = sluice(
        "limits", "set", "rocketmq", "orders", "--messages", "500/s", "--bytes", "5MiB/s", "--burst", "2s", "--reason", "incident 12"
    )
    assert ran.code == 0, ran.err
    read, write = admin.requests
    assert (read.method, read.path) == ("GET", "/v1/limits/rocketmq/orders")
    assert (write.method, write.path) == ("PUT", "/v1/limits/rocketmq/orders")
    assert write.body == {"messages": "500/s", "bytes": "5MiB/s", "burst": "2s", "reason": "incident 12"}
    assert write.headers["If-Match"].startswith('"')
    assert write.query == {"reason": "incident 12"}
    assert "500/s" in ran.out
    assert "override" in ran.out
    assert ran.err == "limit of rocketmq orders changed\n"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["rocketmq", "orders"], "/v1/limits/rocketmq/orders"),
        (["rocketmq", "%RETRY%billing"], "/v1/limits/rocketmq/%25RETRY%25billing"),
        (["rocketmq", "a/b c"], "/v1/limits/rocketmq/a%2Fb%20c"),
        (["rocketmq", "名前"], "/v1/limits/rocketmq/%E5%90%8D%E5%89%8D"),
        (["rocketmq", ".."], "/v1/limits/rocketmq/~.."),
        (["rocketmq", "a\udcff"], "/v1/limits/rocketmq/a%FF"),
        (["amqp", "/", "orders", "order.created"], "/v1/limits/amqp/%2F/orders/order.created"),
        (["amqp", "/", "amq.default", "jobs"], "/v1/limits/amqp/%2F/amq.default/jobs"),
        (["amqp", "/", "", "jobs"], "/v1/limits/amqp/%2F/amq.default/jobs"),
        (["amqp", "/", "fanout", ""], "/v1/limits/amqp/%2F/fanout/"),
        (["amqp", "/", "orders", "a?b#c"], "/v1/limits/amqp/%2F/orders/a%3Fb%23c"),
    ],
)
def test_keys_are_raw_words(sluice: Any, admin: Any, words: list[str], path: str) -> None:
    assert sluice("limits", "get", *words).code == 0
    assert admin.requests[0].path == path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kafka", "orders"], "kafka: there are no such keys"),
        (["rocketmq", "a", "b"], "a key of RocketMQ is rocketmq TOPIC"),
        (["amqp", "/", "orders"], "a key of AMQP is amqp VHOST EXCHANGE ROUTING_KEY"),
    ],
)
def test_wrong_keys_are_usage_errors(sluice: Any, admin: Any, words: list[str], said: str) -> None:
    ran = sluice("limits", "get", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert admin.requests == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--messages", "500"], "did you mean 500/s?"),
        (["--bytes", "5MIB/s"], "did you mean"),
        (["--burst", "2"], "2 has no unit"),
        (["--for", "soon"], "'soon' is no duration"),
        (["--messages", "-5/s"], "cannot be negative"),
        (["--action", "explode"], "'explode' is not one of"),
        (["--burst", "2s", "--burst-messages", "5", "--messages", "1/s"], "give one or the other"),
        (["--candidate-messages", "5"], "did you mean 5/s?"),
        (["--no-candidate", "--candidate-burst", "2s"], "give one or the other"),
        (["--reason", "because"], "name the new limit"),
        ([], "name the new limit"),
    ],
)
def test_wrong_limits_are_usage_errors_before_anything_is_asked(sluice: Any, admin: Any, options: list[str], said: str) -> None:
    ran = sluice("limits", "set", "rocketmq", "orders", *options)
    assert ran.code == 2
    assert said in ran.err
    assert admin.requests == []


def test_everything_a_live_change_may_say(sluice: Any, admin: Any) -> None:
    words = "--messages 1/s --burst-messages 5 --burst-bytes 1MiB --action delay --reply system_busy --mode shadow --open-for 0s --max-delay 2s --for 30m"
    words += " --candidate-messages 2/s --candidate-bytes 1MiB/s --candidate-burst 3s"
    assert sluice("limits", "set", "rocketmq", "orders", *words.split()).code == 0
    assert admin.writes()[0].body == {
        "candidate": {"messages": "2/s", "bytes": "1MiB/s", "burst": "3s"},
        "messages": "1/s", "burst": {"messages": 5, "bytes": "1MiB"}, "action": "delay", "reply": "system_busy", "mode": "shadow", "open_for": "0s",
        "max_delay": "2s", "expires": "30m",
    }  # fmt: skip


def test_a_change_by_somebody_else_in_between_is_a_conflict(sluice: Any, admin: Any) -> None:
    admin.race = lambda: admin.overrides.update({"/v1/limits/rocketmq/orders": {"messages": "1/s"}})
    ran = sluice("limits", "set", "rocketmq", "orders", "--messages", "500/s")
    assert (ran.code, ran.out) == (6, "")
    assert "it was changed since you read it" in ran.err
    assert admin.overrides["/v1/limits/rocketmq/orders"] == {"messages": "1/s"}


def test_the_gateways_remarks_on_a_change_are_printed(sluice: Any, admin: Any) -> None:
    admin.answers["PUT /v1/limits/amqp/%2F/orders/made"] = (200, {"levels": [], "remarks": ["no listener speaks amqp"]})
    ran = sluice("limits", "set", "amqp", "/", "orders", "made", "--messages", "5/s")
    assert ran.code == 0
    assert ran.err.splitlines()[-1] == "no listener speaks amqp"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        (("amqp", "%2F", "orders", "made"), "sluice limits set amqp / orders made ..."),
        (("queue", "%2f", "jobs"), "sluice limits set queue / jobs ..."),
        (("rocketmq", "%RETRY%abc"), None),
        (("amqp", "/", "orders", "100%"), None),
    ],
)
def test_a_word_that_looks_percent_encoded_is_told_with_the_command_that_was_meant(
    sluice: Any, admin: Any, key: tuple[str, ...], meant: str | None
) -> None:
    """Regression: a limit of a virtual host called %2F was set without a word."""
    ran = sluice("limits", "set", *key, "--messages", "5/s")
    assert ran.code == 0, ran.err
    assert ("looks percent-encoded" in ran.err) == (meant is not None)
    if meant is not None:
        assert meant in ran.err


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_a_topic_that_has_not_come_is_told_with_names_like_it(sluice: Any, admin: Any, options: list[str]) -> None:
    """A limit of a name that was mistyped said "changed", and limited nothing."""
    admin.answers["GET /v1/limits/amqp/%2F/ordres/made"] = (200, {"protocol": "amqp", "topic": "%2F/ordres/made", "levels": []})
    admin.answers["PUT /v1/limits/amqp/%2F/ordres/made"] = (200, {"levels": [], "dry_run": bool(options)})
    admin.answers["GET /v1/topics"] = (200, {"items": [{"protocol": "amqp", "topic": "%2F/orders/made"}], "next": None})
    ran = sluice("limits", "set", "amqp", "/", "ordres", "made", "--messages", "5/s", *options)
    assert ran.code == 0, ran.err
    assert ran.err.splitlines()[-1] == "it is not among the topics that have come; like it are: amqp / orders made"
    admin.answers["GET /v1/topics"] = (200, {"items": [{"protocol": "amqp", "topic": "%2F/ordres/made"}], "next": None})
    assert "not among" not in sluice("limits", "set", "amqp", "/", "ordres", "made", "--messages", "5/s", *options).err


def test_if_version_is_what_is_written_against(sluice: Any, admin: Any) -> None:
    version = sluice("limits", "get", "rocketmq", "orders", "-o", "json").json["version"]
    admin.requests.clear()
    assert sluice("limits", "set", "rocketmq", "orders", "--messages", "5/s", "--if-version", version).code == 0
    assert admin.writes()[0].headers["If-Match"] == f'"{version}"'
    assert sluice("limits", "set", "rocketmq", "orders", "--messages", "6/s", "--if-version", version).code == 6


def test_a_dry_run_changes_nothing(sluice: Any, admin: Any) -> None:
    ran = sluice("limits", "set", "rocketmq", "orders", "--messages", "5/s", "--dry-run", "-o", "json")
    assert (ran.code, ran.json["dry_run"]) == (0, True)
    assert admin.overrides == {}
    assert ran.err == "dry run, nothing is changed; would change the limit of rocketmq orders\n"


def test_a_dry_run_shows_now_and_then(sluice: Any, admin: Any) -> None:
    level = {"operation": "produce", "per": "topic", "thing": "orders", "origin": "default", "limit": {"messages": "2000/s"}}
    topic = {
        "protocol": "rocketmq",
        "topic": "orders",
        "before": [level],
        "after": [{**level, "limit": {"messages": "5/s"}, "origin": "override"}],
    }
    admin.answers["PUT /v1/limits/rocketmq/orders"] = (200, {"dry_run": True, "topics": [topic]})
    _, now, then = sluice("limits", "set", "rocketmq", "orders", "--messages", "5/s", "--dry-run").out.splitlines()
    assert now.split()[:7] == ["rocketmq", "orders", "now", "produce", "topic", "orders", "2000/s"]
    assert then.split()[:7] == ["rocketmq", "orders", "then", "produce", "topic", "orders", "5/s"]


def test_a_change_that_replaces_an_earlier_one_prints_what_the_earlier_one_said(sluice: Any, admin: Any) -> None:
    sluice("limits", "set", "rocketmq", "orders", "--messages", "7/s", "--reason", "first")
    ran = sluice("limits", "set", "rocketmq", "orders", "--bytes", "1MiB/s", "--dry-run")
    assert ran.err.endswith("\nwould replace the earlier change: messages 7/s\n")
    ran = sluice("limits", "set", "rocketmq", "orders", "--bytes", "1MiB/s")
    assert ran.err == "limit of rocketmq orders changed\nreplaced the earlier change: messages 7/s\n"


LASTING = {"messages": "50/s"}
END = {"expires": "2026-11-21T12:00:00.000Z"}
LATER = {"expires": "2026-11-21T14:00:00.000+02:00"}  # the same moment


@pytest.mark.parametrize(("earlier", "new", "why"), [(LASTING, END, "has no end"), ({**LASTING, **LATER}, END, ""), (LASTING, {}, "")])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_short_change_over_a_lasting_one_says_what_holds_after_it(
    sluice: Any, admin: Any, dry_run: bool, earlier: dict[str, str], new: dict[str, str], why: str
) -> None:
    path, change = "/v1/limits/rocketmq/orders", {"messages": "100/s", **new}
    admin.overrides[path] = earlier
    preview = {"dry_run": True, "topics": [], "changes": [{"target": path[4:], "before": earlier, "after": change}]}
    admin.answers[f"PUT {path}"] = (200, preview if dry_run else {"levels": [], "override": change})
    ran = sluice("limits", "set", "rocketmq", "orders", "--messages", "100/s", "--for", "30m", *(["--dry-run"] if dry_run else []))
    said = [line for line in ran.err.splitlines() if line.startswith("when it ends")]
    assert said == ([f"when it ends, the rule holds again, and not the earlier change, which {why}"] if why else [])


def test_a_key_without_limits_is_said_to_have_none(sluice: Any, admin: Any) -> None:
    admin.answers["GET /v1/limits/rocketmq/orders"] = (200, {"override": None, "levels": []})
    ran = sluice("limits", "get", "rocketmq", "orders")
    assert (ran.code, ran.out, ran.err) == (0, "", "no limit holds for this key\n")
    assert sluice("limits", "get", "rocketmq", "orders", "-o", "json").json["levels"] == []


def test_rules_show_the_words_that_share_a_bucket_and_until_when_a_change_holds(sluice: Any, admin: Any) -> None:
    override = {"messages": "9/s", "by": "ci", "expires": "2026-11-21T12:30:00Z"}
    admin.rules = {"orders": {"name": "orders", "routing_key_words": 2, "fallback": "drop", "override": override}}
    head, line = sluice("rules", "list").out.splitlines()
    assert all(name in head for name in ("key words", "fallback", "until"))
    assert [word for word in line.split() if word != "-"] == ["orders", "2", "drop", "ci", "2026-11-21T12:30:00Z"]


def test_the_lists_of_rules_and_listeners_go_through_all_pages(sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.client.PAGE", 2)
    names = [f"r{number}" for number in range(5)]
    admin.rules = {name: {"name": name} for name in names}
    admin.topics = [{"name": name} for name in names]
    assert [line.split()[0] for line in sluice("rules", "list").out.splitlines()[1:]] == names
    assert [line.split()[0] for line in sluice("listeners").out.splitlines()[1:]] == names
    assert [rule["name"] for rule in sluice("rules", "list", "-o", "json").json["items"]] == names
    assert [rule["name"] for rule in sluice("rules", "list", "-o", "json", "--limit", "3").json] == names[:3]
    assert "did you mean `r4`?" in sluice("rules", "show", "r44").err, "which is on the last page"


def test_a_fallback_may_be_changed_live(sluice: Any, admin: Any) -> None:
    assert sluice("limits", "set", "amqp", "/", "orders", "x", "--fallback", "drop").code == 0
    assert admin.writes()[-1].body == {"fallback": "drop"}


def test_bursts_of_bytes_are_sizes(sluice: Any, admin: Any) -> None:
    limit = {"bytes": "5MiB/s", "bytes_burst": 10485760}
    admin.answers["GET /v1/limits/rocketmq/orders"] = (200, {"levels": [{"per": "topic", "thing": "orders", "limit": limit}]})
    assert sluice("limits", "get", "rocketmq", "orders").out.splitlines()[1].split()[5:7] == ["5MiB/s", "10MiB"]


def test_the_operation_is_shown_beside_each_limit(sluice: Any, admin: Any) -> None:
    levels = [{"per": "topic", "thing": "%2F/amq.default/jobs", "operation": operation} for operation in ("produce", "consume")]
    admin.answers["GET /v1/limits/amqp/%2F/amq.default/jobs"] = (200, {"levels": levels})
    shown = sluice("limits", "get", "amqp", "/", "amq.default", "jobs").out.splitlines()
    assert [line.split()[0] for line in shown] == ["operation", "produce", "consume"]
    items = [{"protocol": "amqp", "operation": level["operation"], "level": level} for level in levels]
    admin.answers["GET /v1/limits"] = (200, {"items": items, "next": None, "total": 2})
    shown = sluice("limits", "list").out.splitlines()
    assert [line.split()[:2] for line in shown] == [["protocol", "operation"], ["amqp", "produce"], ["amqp", "consume"]]


def test_no_two_columns_have_one_name(sluice: Any, admin: Any) -> None:
    from cli.limit_columns import IN_USE, LEVELS
    from cli.quota_report import QUOTAS
    from cli.quotas import CHANGED
    from cli.rules import RULES

    for shown in (IN_USE, LEVELS, RULES, CHANGED, QUOTAS):
        titles = [each[0] for each in shown]
        assert sorted(titles) == sorted(set(titles))


def test_unset_takes_the_change_back(sluice: Any, admin: Any) -> None:
    sluice("limits", "set", "amqp", "/", "orders", "a.b", "--messages", "5/s")
    ran = sluice("limits", "unset", "amqp", "/", "orders", "a.b", "--reason", "over")
    assert ran.code == 0
    assert admin.overrides == {}
    assert admin.writes()[-1].query == {"reason": "over"}
    assert "default" in ran.out


def test_list_follows_the_pages_to_the_end(sluice: Any, admin: Any) -> None:
    admin.topics = [{"protocol": "rocketmq", "level": {"thing": f"t{number}", "per": "topic"}} for number in range(1203)]
    ran = sluice("limits", "list", "-o", "json", "--sort", "refused", "--protocol", "rocketmq", "-q", "t")
    assert [item["level"]["thing"] for item in ran.json] == [f"t{number}" for number in range(1203)]
    assert [request.query["limit"] for request in admin.requests] == ["500"] * 3
    assert admin.requests[0].query == {"protocol": "rocketmq", "q": "t", "sort": "refused", "limit": "500"}


def test_list_stops_at_its_limit(sluice: Any, admin: Any) -> None:
    admin.topics = [{"level": {"thing": f"t{number}"}} for number in range(20)]
    assert len(sluice("limits", "list", "--limit", "7", "-o", "json").json) == 7
    assert admin.requests[0].query["limit"] == "7"


def test_a_rule_is_changed_and_returned(sluice: Any, admin: Any) -> None:
    assert sluice("rules", "set", "orders", "--messages", "9/s", "--reason", "why").code == 0
    write = admin.writes()[0]
    assert (write.method, write.path, write.body) == ("PUT", "/v1/rules/orders", {"messages": "9/s", "reason": "why"})
    assert sluice("rules", "reset", "orders").code == 0
    assert admin.writes()[1].method == "DELETE"


def test_the_earlier_change_of_a_rule_is_told(sluice: Any, admin: Any) -> None:
    admin.rules["orders"]["override"] = {"messages": "300/s", "by": "admin"}
    assert sluice("rules", "set", "orders", "--messages", "9/s").err == "rule orders changed\nreplaced the earlier change: messages 300/s\n"


def test_a_rule_that_is_not_there_is_not_found(sluice: Any, admin: Any) -> None:
    ran = sluice("rules", "set", "ordres", "--messages", "9/s")
    assert (ran.code, ran.err) == (7, "sluice: there is no rule ordres; did you mean `orders`?\n")
    assert admin.writes() == []
    ran = sluice("rules", "reset", "nonsense")
    assert (ran.code, ran.err) == (7, "sluice: there is no rule nonsense; `sluice rules list` shows all\n")


def test_a_live_change_of_a_rule_that_is_gone_can_be_reset(sluice: Any, admin: Any) -> None:
    admin.answers["GET /v1/rules/gone"] = (404, {"detail": "gone"})
    admin.answers["DELETE /v1/rules/gone"] = (200, {"items": []})
    assert sluice("rules", "reset", "gone").code == 0
    assert admin.writes()[0].headers["If-Match"] == "*"


def test_rules_are_listed(sluice: Any, admin: Any) -> None:
    assert "orders" in sluice("rules", "list").out
    assert sluice("rules", "list", "-o", "json").json["items"][0]["name"] == "orders"


def test_an_empty_list_does_not_say_that_no_limit_was_needed(sluice: Any, admin: Any) -> None:
    """Regression: it said so after a change was taken back that had refused 3,421 messages, whose counts had gone with it."""
    ran = sluice("limits", "list")
    assert ran.code == 0
    assert "no limit is in use, and none is changed live (a change taken back takes its counts along)" in ran.err
    assert "none was needed" not in ran.err
