"""An error says what happened, then why, and last what to do next: a table of those that have a remedy."""

from __future__ import annotations

import re
from typing import Any

import pytest

LIVE = {"name": "storm", "limit": {"messages": "5/s"}, "live": {"number": 1}}
FILE = {"name": "orders", "limit": {"messages": "5/s"}, "place": "limits.yaml:2"}
CASES = [  # words; what happened, at the beginning; what to do, at the end
    ("lmits list", r"no such command 'lmits'", r"did you mean `limits`\?"),
    ("limits get kafka x", r"kafka: there are no such keys", r"say amqp, .*queue"),
    ("limits get amqp / orders", r"a key of AMQP is amqp VHOST", r"such as: amqp / amq\.default orders"),
    ("why orders", r"orders: no such protocol; a topic is amqp VHOST", r"sluice topics -q orders"),
    ("why client 10.0.0.7", r"`why` is of a topic", r"sluice limits get client 10\.0\.0\.7"),
    ("limits get client", r"a key of client is client ADDRESS", r"such as: client 10\.0\.0\.7"),
    ("limits get connection 7", r"a connection is over", r"close it \(`sluice connections close`\), or limit its client or user"),
    ("limits get rule orders", r"the limit of a rule", r"a new one added with `sluice rules add NAME`"),
    ("limits get queue / jobs --operation produce", r"queue has no --operation produce", r"say amqp VHOST amq\.default QUEUE .*"),
    ("limits get exchange / orders --operation consume", r"exchange has no --operation consume", r"say queue VHOST QUEUE"),
    ("limits set rocketmq orders", r"", r"name the new limit, e\.g\. --messages 500/s"),
    ("limits set rocketmq orders --messages 5/s --for 1h --no-end", r"--no-end contradicts --for", r"give one or the other"),
    ("rules set orderz --messages 5/s", r"there is no rule orderz", r"did you mean `orders`\?"),
    ("rules set moon --messages 5/s", r"there is no rule moon", r"`sluice rules list` shows all"),
    ("rules add orders --messages 5/s", r"there is a rule orders already", r"--replace puts .*, `sluice rules set orders` .* alone"),
    ("rules add x --match topic --messages 5/s", r"--match topic", r"write it FIELD=PATTERN, such as topic='order\*'"),
    ("rules reset storm", r"storm was added live", r"`sluice rules remove storm` takes it away"),
    ("rules remove orders", r"orders stands in limits\.yaml:2", r"`sluice reload`; `sluice rules set orders --mode off` lets all pass .*"),
    ("connections close 7", r"Close connection 7", r"add --yes\."),
    ("drain", r"Drain the gateway", r"add --yes\."),
    ("top --once --connections --sort used", r"--sort used is not for connections", r"they sort by wait, .*name"),
    ("topics --watch never", r".*never.*", r"write seconds, such as --watch 5"),
    ("token new ci --file .", r"\. exists", r"remove it first if .*"),
    ("topics --admin http://127.0.0.1:1", r"http://127\.0\.0\.1:1", r"is the gateway running, is --admin right\?"),
    ("topics --token-file nowhere", r".*nowhere", r"name another with --token-file, or put the token itself into SLUICE_TOKEN"),
    ("history list -o xml", r".*'xml'", r"'yaml'\."),
]  # fmt: skip


@pytest.mark.parametrize(("words", "happened", "remedy"), CASES, ids=[words for words, _, _ in CASES])
def test_an_error_ends_with_what_to_do(sluice: Any, admin: Any, words: str, happened: str, remedy: str) -> None:
    admin.rules = {"orders": FILE, "storm": LIVE}
    ran = sluice(*words.split())
    assert ran.code, ran.out
    said = ran.err.partition("sluice: ")[2] or ran.err.partition("Error: ")[2]
    assert said, ran.err
    assert re.match(rf"(?s){happened}.*{remedy}\s*\Z", said), ran.err
    assert "Traceback" not in ran.err


def test_a_token_that_is_not_valid_ends_with_where_one_is_looked_for(sluice: Any, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_TOKEN", "wrong")
    ran = sluice("topics")
    assert ran.code == 5
    first, *others = ran.err.splitlines()
    assert "401" in first
    assert others, "what to do comes after it"
    assert any(word in others[-1] for word in ("SLUICE_TOKEN", "--token-file", "sluice token")), ran.err
