"""How inputs are changed: by their octets, or, where a target's input has a structure, so that most of what comes out still has it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fuzz.mutators import amqp, octets, rocketmq, texts

Mutator = Callable[[bytes, Random], bytes]

MUTATORS: dict[str, Mutator] = {
    "amqp_client": amqp.client,
    "amqp_broker": amqp.broker,
    "amqp_handshake": amqp.handshake,
    "rocketmq_client": rocketmq.client,
    "rocketmq_broker": rocketmq.broker,
    "rocketmq_header": rocketmq.header,
    "nameserver_route": texts.json_text,
    "admin_http": texts.http,
    "admin_api": texts.http,
    "admin_body": texts.flagged_json,
    "quantity": texts.quantity,
    "yaml_tree": texts.yaml,
    "settings_file": texts.yaml,
    "rules_file": texts.yaml,
    "state_file": texts.flagged_json,
    "journal": texts.flagged_lines,
    "quota_snapshot": texts.json_text,
    "log_lines": texts.flagged_lines,
    "log_manifest": texts.json_text,
    "takeover": texts.flagged_lines,
}


def mutated(name: str, data: bytes, luck: Random, most: int) -> bytes:
    """An input for the target `name`, of at most `most` bytes: one in four by its octets alone."""
    mutator = MUTATORS.get(name, octets.mutate)
    return (octets.mutate if luck.random() < 0.25 else mutator)(data, luck)[:most]
