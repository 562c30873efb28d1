"""RecentKeys: a name is found again with its own key and no other, however many others there are and wherever they lie."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.octets import hash_octets
from limiter.decisions.origins import Origins
from limiter.keys import Key, Origin
from limiter.recent_keys import MAX_PLACES, MIN_PLACES, WAYS, RecentKeys
from limiter.rules.rule_set import RuleSet
from limiter.rules.sender import Sender
from limiter.topics import amqp_topic
from support.cases import in_one_loop

ORIGIN = Origin("amqp", Sender("here", "10.0.0.7", "shop"), b"/")


def key_of(name: bytes) -> Key:
    return Key(ORIGIN, amqp_topic(b"/", b"", name), None, "produce")


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(
        st.binary(min_size=1, max_size=40) | st.integers(0, 3000).map(lambda number: b"orders-%d.created" % number), max_size=200
    ),
    before=st.binary(max_size=9),
    after=st.binary(max_size=9),
)
def test_a_name_has_its_own_key_or_none(names: list[bytes], before: bytes, after: bytes) -> None:
    recent = RecentKeys()
    keys = {name: key_of(name) for name in names}
    found = 0
    for turn in range(3):
        for name in names:
            data = before + name + after
            key = recent.find(data, len(before), len(before) + len(name))
            assert key is None or key is keys[name]
            found += key is not None
            if key is None:
                recent.note(name, keys[name])
                assert recent.find(name, 0, len(name)) is keys[name]
            if turn == 2 and len(keys) == 1:
                assert key is not None


def test_what_is_used_again_and_again_is_found_though_it_displaces_each_other_at_first() -> None:
    recent = RecentKeys()
    names = [b"\x00\x13shop.orders.%02d.new" % number for number in range(50)]
    missed = []
    for _ in range(20):
        misses = 0
        for name in names:
            if recent.find(name, 0, len(name)) is None:
                misses += 1
                recent.note(name, key_of(name))
        missed.append(misses)
    assert missed[0] == 50
    assert missed[-1] <= 6


def test_names_whose_hashes_meet_take_each_others_place_and_cost_no_more_memory() -> None:
    recent = RecentKeys()
    wanted = hash_octets(b"name-0", 0, 6) & (MAX_PLACES - 1)
    meeting = [
        name for name in (b"name-%d" % number for number in range(800_000)) if hash_octets(name, 0, len(name)) & (MAX_PLACES - 1) == wanted
    ]
    assert len(meeting) > WAYS
    keys = {name: key_of(name) for name in meeting}
    for _ in range(300):
        for name in meeting:
            assert recent.find(name, 0, len(name)) is None
            recent.note(name, keys[name])
            assert recent.find(name, 0, len(name)) is keys[name]
    assert repr(recent) == f"<RecentKeys {WAYS}/{2 * MIN_PLACES}>"


@in_one_loop
@pytest.mark.parametrize("names", [50, 1_000, 10_000, 40_000])
def test_all_names_in_use_are_found_but_for_a_few_however_many_they_are(names: int) -> None:
    recent = RecentKeys()
    keys = {b"shop.orders.%05d.created" % number: key_of(b"shop.orders.%05d.created" % number) for number in range(names)}
    missed = names
    for _ in range(12):
        missed = 0
        for name, key in keys.items():
            found = recent.find(name, 0, len(name))
            assert found is None or found is key
            if found is None:
                missed += 1
                recent.note(name, key)
    assert missed <= names // 20, recent
    places = int(repr(recent).partition("/")[2].removesuffix(">"))
    assert places <= 32 * names


def test_an_origin_that_forgets_its_keys_forgets_these() -> None:
    origins = Origins(RuleSet(()), 100)
    origin = origins.origin("amqp", Sender("here", "10.0.0.7", "shop"), b"/", 0)
    origin.recent = RecentKeys()
    origins.release(origin)
    assert origin.recent is None


def test_keys_that_origins_forget_to_make_room_are_not_kept_for_having_been_used_lately() -> None:
    """Bounded are the keys of all origins together, whatever each has used lately; with a key go its buckets."""
    origins = Origins(RuleSet(()), 100)
    all_of_them = [origins.origin("amqp", Sender("here", f"10.0.0.{number}", "shop"), b"/", 0) for number in range(5)]
    for origin in all_of_them:
        recent = origin.recent = RecentKeys()
        for number in range(300):
            name = b"reply-%d" % number
            recent.note(name, origins.key(origin, name, amqp_topic(b"/", b"", name), None, "produce", told_apart=True))
    gc.collect()
    alive = sum(isinstance(thing, Key) and thing.origin in all_of_them for thing in gc.get_objects())
    assert alive == origins.key_count() == 100
    for origin in all_of_them:
        for number in range(300):
            name = b"reply-%d" % number
            assert origin.recent is not None
            assert origin.recent.find(name, 0, len(name)) in {None, origin.keys.get(name)}


def test_a_name_is_forgotten_and_not_the_one_that_has_its_place() -> None:
    recent = RecentKeys()
    names = [b"name-%d" % number for number in range(1000)]
    first = names[0]
    others = [
        name
        for name in names[1:]
        if hash_octets(name, 0, len(name)) & MIN_PLACES - WAYS == hash_octets(first, 0, len(first)) & MIN_PLACES - WAYS
    ]
    keys = [key_of(name) for name in others]
    recent.note(first, key_of(first))
    recent.note(others[0], keys[0])
    recent.note(others[1], keys[1])
    recent.forget(first)
    assert recent.find(first, 0, len(first)) is None
    assert recent.find(others[1], 0, len(others[1])) is keys[1]
    recent.forget(others[1])
    assert recent.find(others[1], 0, len(others[1])) is None


def test_a_name_that_is_noted_again_has_one_place() -> None:
    recent = RecentKeys()
    names = [b"name-%d" % number for number in range(8)]
    keys = {name: key_of(name) for name in names}
    for _ in range(3):
        for name in names:
            recent.note(name, keys[name])
    for name in names:
        recent.forget(name)
        assert recent.find(name, 0, len(name)) is None
    assert repr(recent).startswith("<RecentKeys 0/")
