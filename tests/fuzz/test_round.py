"""A short round of fuzzing, the same every time: mutations of the corpus through every target, on the build under test."""

from __future__ import annotations

import base64
from itertools import islice

import pytest
from fuzz.inputs import known, mutations
from fuzz.targets import TARGETS

ROUND = 200  # inputs of each target; a second of the slower ones
QUICK = {  # of those that are quicker
    "amqp_handshake": 2000, "rocketmq_header": 3000, "rocketmq_template": 4000, "nameserver_route": 3000, "proxy_header": 3000,
    "admin_body": 1500, "quantity": 2000, "quota_snapshot": 700, "state_file": 3000, "journal": 700, "log_manifest": 2500, "yaml_tree": 800,
    "admin_http": 400, "amqp_talk": 400, "rocketmq_talk": 400, "amqp_client": 400,
    "admin_api": 80, "log_lines": 60,
}  # fmt: skip
SEED = 20261125


@pytest.mark.parametrize("name", TARGETS)
def test_a_round(name: str) -> None:
    target = TARGETS[name]
    for number, data in enumerate(islice(mutations(name, known(name), SEED), QUICK.get(name, ROUND))):
        try:
            target(data)
        except BaseException as error:
            error.add_note(f"input {number} of {name}, base64: {base64.b64encode(data).decode()}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_a_round_is_the_same_every_time(name: str) -> None:
    first, again = (list(islice(mutations(name, known(name), SEED), 30)) for _ in range(2))
    assert first == again
    assert len(set(first)) > 20, "mutations that hardly change anything"
