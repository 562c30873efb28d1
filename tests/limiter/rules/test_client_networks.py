"""Clients with IPv6: who has one address has as many as he likes, so a network is one client (`ipv6_prefix`)."""

from __future__ import annotations

import pytest

from limiter.rules.errors import RuleError
from limiter.rules.patterns import client_network
from limiter.rules.rule_set import Effective, Match, Rule, RuleSet
from limiter.topics import rocketmq_topic
from support.models.asking import Limit, Rate

LIMIT = Limit(messages=Rate(5))


def client_rule(name: str, client: str | None = None, ipv6_prefix: int | None = None) -> Rule:
    return Rule(name, Match(client=client), per="client", limit=LIMIT, ipv6_prefix=ipv6_prefix)


def effective(rules: tuple[Rule, ...], client: str) -> Effective:
    (found,) = RuleSet(rules).effective(rocketmq_topic(b"t"), client=client)
    return found


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff:ffff:ffff:ffff", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1", "fe80::/64"),
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::1", "::1"),
        ("/run/a:b", "/run/a:b"),
    ],
)
def test_a_clients_bucket_is_its_networks_where_it_can_choose_addresses(client: str, expected: str) -> None:
    found = effective((client_rule("clients"),), client)
    assert (found.thing, found.identity) == (expected, ("client", "", "", expected))


@pytest.mark.parametrize(("prefix", "expected"), [(128, "2001:db8:1:2:3::1"), (56, "2001:db8:1::/56"), (48, "2001:db8:1::/48")])
def test_the_length_of_a_clients_network_can_be_said(prefix: int, expected: str) -> None:
    assert effective((client_rule("clients", ipv6_prefix=prefix),), "2001:db8:1:2:3::1").thing == expected


def test_a_host_that_a_rule_names_is_a_client_of_its_own() -> None:
    rules = (client_rule("all"), client_rule("one", "2001:db8::7"))
    assert (effective(rules, "2001:db8::7").rule.name, effective(rules, "2001:db8::7").thing) == ("one", "2001:db8::7")
    assert (effective(rules, "2001:db8::8").rule.name, effective(rules, "2001:db8::8").thing) == ("all", "2001:db8::/64")


def test_a_rule_for_a_part_of_a_network_has_a_bucket_of_its_own() -> None:
    rules = (client_rule("part", "2001:db8::/96"), client_rule("all"))
    part, rest = effective(rules, "2001:db8::7"), effective(rules, "2001:db8:0:0:1::")
    assert (part.rule.name, rest.rule.name) == ("part", "all")
    assert part.thing == rest.thing == "2001:db8::/64"
    assert part.identity != rest.identity
    whole = effective((client_rule("net", "2001:db8::/32"), client_rule("all")), "2001:db8::7")
    assert whole.identity == ("client", "", "", "2001:db8::/64")


@pytest.mark.parametrize(
    ("per", "prefix", "field"), [("topic", 64, "ipv6_prefix"), ("client", 0, "ipv6_prefix"), ("client", 129, "ipv6_prefix")]
)
def test_a_length_that_cannot_be_is_an_error(per: str, prefix: int, field: str) -> None:
    with pytest.raises(RuleError) as failed:
        Rule("r", per=per, limit=LIMIT, ipv6_prefix=prefix)
    assert failed.value.field == field


def test_the_network_of_what_is_no_address_is_itself() -> None:
    assert client_network("a:b:c", 64) == "a:b:c"
