"""Origins do what a dictionary of paths does, folded or not."""

from __future__ import annotations

import sys

from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.origins import SettingOrigins
from config.problems import SourceLocation

LISTS = st.sampled_from(["rules", "listeners", "listeners[0].upstreams", "rules[1].match.client"])
ITEMS = st.builds("{}[{}]".format, LISTS, st.integers(0, 2))
RESTS = st.sampled_from(["", ".name", ".match", ".match.client", ".match.client[0]", ".limit.messages"])
WRITTEN = st.builds(SourceLocation, st.sampled_from(["a.yaml", "b.yaml"]), st.integers(1, 4 << 20), st.integers(1, 4 << 20))
PLACES = WRITTEN | st.sampled_from([SourceLocation("flag --x"), SourceLocation("environment X")])
# of a list: an item with its settings, read, or put one by one or taken out
Steps = list[tuple[str, dict[str, SourceLocation], bool]]
STEPS = st.lists(st.tuples(ITEMS, st.dictionaries(RESTS, PLACES, min_size=1), st.booleans()), max_size=12)
MOVED = st.sampled_from(
    [
        {},
        {"rules": "rules"},
        {"rules[1]": "rules[2]", "listeners": "rules[0]"},
        {"listeners[0].name": "listeners[2].name", "rules[0].match": "rules[1].match"},
    ]
)


def made(steps: Steps) -> tuple[SettingOrigins, dict[str, SourceLocation]]:
    origins = SettingOrigins()
    known: dict[str, SourceLocation] = {}
    for item, rests, read in steps:
        mark = origins.mark
        for rest, place in rests.items():
            origins[item + rest] = known[item + rest] = place
        if read:
            origins.fold(item, mark)
    return origins, known


def lies_in(path: str, outer: str) -> bool:
    return path.startswith(outer) and path[len(outer) : len(outer) + 1] in {"", ".", "["}


ONE = [("rules[0]", {"": SourceLocation("a.yaml", 1, 1)}, True)]


@example([], ONE, {"rules[1]": "rules[2]", "listeners": "rules[0]"})  # an item becomes what is no item
@given(STEPS, STEPS, MOVED)
@settings(deadline=None)
def test_they_do_what_a_dictionary_does(old: Steps, new: Steps, moved: dict[str, str]) -> None:
    origins, known = made(old)
    others, known_there = made(new)
    merged = {path: place for path, place in known.items() if not any(lies_in(path, here) for here in moved)}
    for here, there in moved.items():
        merged |= {here + path[len(there) :]: place for path, place in known_there.items() if lies_in(path, there)}
    for found, wanted in [(origins.merged(others, moved), merged), (origins, known), (others, known_there)]:
        assert dict(found) == wanted
        assert len(found) == len(wanted)
        assert all(found.get(path) == place for path, place in wanted.items())
        assert found.get("rules[1].nothing") is None
        assert found.get("nothing") is None


def test_rules_that_are_alike_share_their_paths() -> None:
    rests = ["", ".name", ".match", ".match.protocol", ".match.topic", ".limit", ".limit.messages", ".action"]
    origins = SettingOrigins()
    for number in range(1000):
        mark = origins.mark
        for column, rest in enumerate(rests, 1):
            origins[f"rules[{number}]{rest}"] = SourceLocation("limits.yaml", number + 300, column)
        origins.fold(f"rules[{number}]", mark)
    assert origins["rules[999].limit.messages"] == SourceLocation("limits.yaml", 1299, 7)
    size = sum(sys.getsizeof(key) + sys.getsizeof(value) + sys.getsizeof(value[2]) for key, value in origins._folded.items())
    assert size / 1000 < 300  # bytes a rule
