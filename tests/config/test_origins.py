"""Origins do what a dictionary of paths does, folded or not."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from config.origins import SettingOrigins
from config.problems import SourceLocation

LISTS = st.sampled_from(["rules", "listeners", "listeners[0].upstreams", "rules[1].match.client"])
ITEMS = st.builds("{}[{}]".format, LISTS, st.integers(0, 2))
RESTS = st.sampled_from(["", ".name", ".match", ".match.client", ".match.client[0]", ".limit.messages"])
WRITTEN = st.builds(SourceLocation, st.sampled_from(["a.yaml", "b.yaml"]), st.integers(1, 4 << 20), st.integers(1, 4 << 20))
PLACES = WRITTEN | st.sampled_from([SourceLocation("flag --x"), SourceLocation("environment X")])
# of a list: an item with its settings, read, or put one by one or taken out
READINGS = st.tuples(ITEMS, st.dictionaries(RESTS, PLACES, min_size=1), st.sampled_from(["read", "put", "delete", "copy"]))


@given(st.lists(READINGS, max_size=12))
@settings(deadline=None)
def test_they_do_what_a_dictionary_does(steps: list[tuple[str, dict[str, SourceLocation], str]]) -> None:
    origins = SettingOrigins()
    known: dict[str, SourceLocation] = {}
    copies: list[tuple[SettingOrigins, dict[str, SourceLocation]]] = []
    for item, rests, what in steps:
        mark = origins.mark
        for rest, place in rests.items():
            path = item + rest
            if what == "delete":
                assert origins.pop(path, None) == known.pop(path, None)
            else:
                origins[path] = known[path] = place
        if what == "read":
            origins.fold(item, mark)
        elif what == "copy":
            copies.append((origins.copy(), dict(known)))
    for found, wanted in [(origins, known), *copies]:
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
