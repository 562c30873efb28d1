"""`answer: accepted_by_gateway` only where something is spooled that the gateway could answer."""

from __future__ import annotations

import pytest

from limiter.limits import Limit, Rate
from limiter.rules.rule import Match, Rule, RuleError

LIMIT = Limit(messages=Rate(1))


def test_an_answer_of_the_gateway_is_for_what_is_spooled_of_rocketmq() -> None:
    with pytest.raises(RuleError, match="say action: spool, or leave it out"):
        Rule("a", limit=LIMIT, answer="accepted_by_gateway")
    with pytest.raises(RuleError, match="accepted_by_gateway is RocketMQ's; leave it out"):
        Rule("a", Match(protocol="amqp"), limit=LIMIT, action="spool", answer="accepted_by_gateway")
    with pytest.raises(RuleError, match="answer"):
        Rule("a", Match(protocol="rocketmq"), limit=LIMIT, action="spool", answer="whatever")
    for match in (Match(protocol="rocketmq"), Match()):
        assert Rule("a", match, limit=LIMIT, action="spool", answer="accepted_by_gateway").answer == "accepted_by_gateway"
