"""Thousands of live changes: each further one parses itself alone, and the rules are those of a start with the same state."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from admin.store import parsed_changes
from admin.store.changes import Author
from admin.store.state import ENCODED_AT_ONCE, Edit, State, StoredOverride, decode_state, encode_state, in_pieces, key_target, live
from admin.store.store import Store
from limiter.topics import rocketmq_topic
from support.admin.admin_client import RULES, Clock

WHO = Author("tester", "admin", "127.0.0.1", "r1")


def targets(count: int) -> list[str]:
    topics = [key_target(rocketmq_topic(b"topic-%d" % number)) for number in range(count)]
    clients = [f"limits/client/10.0.{number // 250}.{number % 250}" for number in range(count // 10)]
    return topics + clients


async def change(store: Store, edits: list[Edit]) -> None:
    await store.change(lambda: (edits, None), WHO, "test")


async def test_a_change_of_one_of_thousands_parses_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(tmp_path, RULES, Clock())
    await change(store, [(target, StoredOverride(messages="7/s")) for target in targets(3000)])
    parsed: Counter[str] = Counter()

    def counted(stored: StoredOverride) -> object:
        parsed[str(stored.messages)] += 1
        return live(stored)

    monkeypatch.setattr(parsed_changes, "live", counted)
    for rate in ("1/s", "2/s", "3/s"):
        store.plan([(targets(3)[2], StoredOverride(messages="9/s"))])  # a preview between them
        await change(store, [(targets(3)[1], StoredOverride(messages=rate))])
        assert await store.remove_expired() == ""
    assert parsed == {"1/s": 1, "2/s": 1, "3/s": 1, "9/s": 3}


@pytest.mark.parametrize("seed", range(20))
async def test_the_rules_are_those_of_a_start_with_the_same_state(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    clock = Clock()
    store = Store.open(tmp_path, RULES, clock)
    places = targets(30)
    for number in range(40):
        chosen = rng.sample(places, rng.randint(1, 4))
        expires = rng.choice([None, None, "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"])
        edits: list[Edit] = [(target, rng.choice([None, StoredOverride(messages=f"{number + 1}/s", expires=expires)])) for target in chosen]
        edits += rng.choices(edits, k=rng.randint(0, 2))  # the same target more than once
        if rng.random() < 0.3:
            store.plan(edits)
        else:
            await change(store, edits)
        if rng.random() < 0.2:
            await store.remove_expired()
    rules, state = store.rules(), store.state
    first_end = store._in_force.first_end(state)
    store.close()
    again = Store.open(tmp_path, RULES, clock)
    assert again.state == state
    assert again.rules().overrides == rules.overrides
    assert again.rules().level_overrides == rules.level_overrides
    assert again.rules().next_expiry == rules.next_expiry
    assert again._in_force.first_end(again.state) == first_end
    again.close()


@pytest.mark.parametrize("count", [0, 1, ENCODED_AT_ONCE, ENCODED_AT_ONCE + 1, 3 * ENCODED_AT_ONCE, 3 * ENCODED_AT_ONCE + 7])
def test_a_state_that_is_encoded_in_pieces_is_the_same_bytes(count: int) -> None:
    keys = {target: StoredOverride(messages=f"{1 + number}/s", reason='"{}') for number, target in enumerate(targets(count)[:count])}
    assert msgspec.json.encode(in_pieces(keys)) == msgspec.json.encode(keys)
    levels = {f"limits/client/10.1.{number // 250}.{number % 250}": StoredOverride(messages="1/s") for number in range(count)}
    state = State(3, 4, keys, levels=levels)
    assert decode_state(encode_state(state)) == state
