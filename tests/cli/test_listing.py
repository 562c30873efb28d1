"""Every list sorts, is cut and can be watched, by one mechanism."""

from __future__ import annotations

from typing import Any

import click
import pytest

from cli.listing import moment_of, order_items
from cli.main import sluice as root

LISTS = ["topics", "listeners", "limits list", "rules list", "connections list", "history list", "audit list", "spool list", "token list"]
FLEET = "fleet status"
Change = dict[str, Any]


def verb(words: str) -> click.Command:
    command: click.Command = root
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


def choices(words: str) -> list[str]:
    kind = next(each.type for each in verb(words).params if "--sort" in each.opts)
    assert isinstance(kind, click.Choice)
    return [*kind.choices]


@pytest.mark.parametrize("words", [*LISTS, FLEET])
def test_every_list_sorts_is_cut_and_watched(words: str) -> None:
    options = {name for each in verb(words).params for name in each.opts}
    assert {"--sort", "--limit", "--watch"} <= options


def test_no_other_list_is_left_out() -> None:
    def lists(command: click.Command, words: str) -> list[str]:
        if not isinstance(command, click.Group):
            return [words] if words.endswith(" list") else []
        inner = ((name, command.get_command(click.Context(command), name)) for name in command.list_commands(click.Context(command)))
        return [found for name, each in inner if each is not None for found in lists(each, f"{words} {name}".strip())]

    assert set(lists(root, "")) <= set(LISTS)


@pytest.mark.parametrize("words", LISTS)
def test_each_order_is_taken(sluice: Any, admin: Any, words: str) -> None:
    for sort in choices(words):
        ran = sluice(*words.split(), "--sort", sort)
        assert ran.code == 0, ran.err
    assert sluice(*words.split(), "--sort", "beauty").code == 2


def test_numbers_come_the_largest_first_texts_by_the_alphabet_and_nothing_last() -> None:
    items: list[Change] = [{"n": 1, "at": "2026-11-21T12:00:00Z"}, {"n": None, "at": ""}, {"n": 3.5, "at": "2026-11-22T12:00:00+01:00"}]
    assert [each["n"] for each in order_items(items, {"n": lambda item: item["n"]}, "n")] == [3.5, 1, None]
    assert [each["n"] for each in order_items(items, {"at": moment_of("at")}, "at")] == [3.5, 1, None]
    assert order_items(items, {"place": None}, "place") == items
    names = [{"name": name} for name in ("b", "C", "", "a")]
    assert [each["name"] for each in order_items(names, {"name": lambda item: item["name"]}, "name")] == ["a", "b", "C", ""]


def column_of(sluice: Any, number: int, *words: object) -> list[str]:
    ran = sluice(*words)
    assert ran.code == 0, ran.err
    return [line.split()[number] for line in ran.out.splitlines()[1:]]


def token(name: str, role: str, used: str | None, ends: str | None) -> Change:
    return {"name": name, "role": role, "origin": "api", "valid": True, "last_used_at": used, "expires_at": ends, "created_at": used}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], "ab c"),
        (["--sort", "used"], "cab"),
        (["--sort", "expires"], "bca"),
        (["--sort", "role"], "bca"),
        (["--sort", "used", "--limit", "1"], "c"),
        (["--limit", "2"], "ab"),
    ],
)
def test_tokens(sluice: Any, admin: Any, options: list[str], names: str) -> None:
    admin.topics = [
        token("a", "viewer", "2026-11-20T12:00:00Z", None),
        token("b", "admin", None, "2027-01-01T00:00:00Z"),
        token("c", "operator", "2026-11-21T12:00:00Z", "2027-02-01T00:00:00Z"),
    ]
    assert column_of(sluice, 0, "token", "list", *options) == [*names.replace(" ", "")]


def test_rules(sluice: Any, admin: Any) -> None:
    def rule(name: str, rate: float | None, changed: str | None) -> Change:
        limit = {} if rate is None else {"messages": f"{rate:g}/s", "messages_per_second": rate}
        return {"name": name, "limit": limit, "override": {"at": changed} if changed else None}

    admin.rules = {
        each["name"]: each for each in (rule("b", 5, None), rule("c", None, "2026-11-20T12:00:00Z"), rule("a", 500, "2026-11-21T12:00:00Z"))
    }
    for options, names in (
        ([], "bca"), (["--sort", "name"], "abc"), (["--sort", "rate"], "abc"), (["--sort", "changed"], "acb"), (["--limit", "1"], "b"),
    ):  # fmt: skip
        assert column_of(sluice, 0, "rules", "list", *options) == [*names], options
    body = sluice("rules", "list", "--sort", "name", "-o", "json").json
    assert ([each["name"] for each in body["items"]], body["revision"]) == (["a", "b", "c"], 1)


def test_listeners(sluice: Any, admin: Any) -> None:
    admin.topics = [
        {"name": name, "seats": {"taken": taken, "most": 9}, "connections_refused": {"max_connections": refused}}
        for name, taken, refused in (("b", 1, 9), ("a", 7, 0), ("c", 3, 5))
    ]
    for sort, names in (("place", "bac"), ("name", "abc"), ("connections", "acb"), ("refused", "bca")):
        assert column_of(sluice, 0, "listeners", "--sort", sort) == [*names]


@pytest.mark.parametrize(
    ("options", "urls"),
    [
        ([], ["first", "second", "away"]),
        (["--limit", "1"], ["first"]),
        (["--sort", "trouble"], ["away", "second", "first"]),
        (["--sort", "trouble", "--limit", "1"], ["away"]),
        (["--sort", "name"], ["second", "first", "away"]),
        (["--sort", "connections"], ["second", "first", "away"]),
        (["--sort", "revision"], ["first", "second", "away"]),
    ],
)
def test_gateways_of_a_fleet(sluice: Any, admin: Any, second_admin: Any, options: list[str], urls: list[str]) -> None:
    """What is away sets the exit code, even where it is not among those shown."""
    admin.answers["GET /v1/status"] = (200, {"name": "m", "ready": True, "connections": 7, "revision": 12})
    admin.answers["GET /v1/live-changes"] = (200, {"digest": "a", "changes": {}})
    second_admin.answers["GET /v1/status"] = (200, {"name": "b", "ready": True, "connections": 99, "revision": 3})
    second_admin.answers["GET /v1/live-changes"] = (200, {"digest": "other", "changes": {}})
    names = {admin.url: "first", second_admin.url: "second", "http://127.0.0.1:1": "away"}
    ran = sluice("fleet", "status", *[word for url in names for word in ("-g", url)], "-o", "json", *options)
    assert [names[row["url"]] for row in ran.json] == urls
    assert ran.code == 4


def entry(number: int, by: str, target: str) -> Change:
    changes = [{"target": target, "before": None, "after": {"messages": "9/s"}}]
    return {
        "revision": number, "sequence": number, "at": f"2026-11-21T12:00:0{number}Z", "by": by, "action": "PUT", "outcome": "applied",
        "reason": "why", "changes": changes,
    }  # fmt: skip


JOURNAL = [entry(3, "b", "limits/rocketmq/c"), entry(2, "c", "limits/rocketmq/a"), entry(1, "a", "limits/rocketmq/b")]


@pytest.mark.parametrize(
    ("words", "options", "numbers"),
    [
        ("history list", [], "321"),
        ("history list", ["--sort", "oldest"], "123"),
        ("history list", ["--sort", "oldest", "--limit", "2"], "23"),
        ("history list", ["--sort", "by"], "132"),
        ("history list", ["--sort", "what"], "213"),
        ("audit list", ["--sort", "oldest"], "123"),
        ("audit", ["--sort", "by", "--limit", "2"], "32"),
    ],
)
def test_journals_have_the_latest_lines_in_any_order(sluice: Any, admin: Any, words: str, options: list[str], numbers: str) -> None:
    admin.topics = admin.history = JOURNAL
    assert column_of(sluice, 0, *words.split(), *options) == [*numbers]


@pytest.mark.parametrize("words", ["history list", "audit list"])
def test_journals_take_the_filters_of_the_api(sluice: Any, admin: Any, words: str) -> None:
    since, until = "2026-11-21T12:00:00Z", "2026-11-22T00:00:00Z"
    ran = sluice(*words.split(), "--by", "ops", "--target", "limits/", "--since", since, "--until", until, "-q", "incident")
    assert ran.code == 0, ran.err
    query = admin.requests[-1].query
    assert query == {"by": "ops", "target": "limits/", "since": since, "until": until, "q": "incident", "limit": "50"}
    assert "is like that" in ran.err or ran.out
