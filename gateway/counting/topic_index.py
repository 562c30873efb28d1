"""All topics in the order of their names, to be paged and searched without a look at each.

The naive way copies the table of topics for each page, makes each name lower case to search it, and puts those found in order: 20 to 130 ms
of the processor for each look at 100,000 topics (measured 2026-11), and an open page looks each two seconds. Here the order is kept: the
topics stand in runs of at most MOST_IN_RUN, each in order, one after the other. A topic that comes or goes moves some of one run, 2 µs.
The names of a run are also kept as one text, in lower case, once it has been searched: a run without the word is passed over by one look
at that text, in C.

Who asks gets lists that never change: the next topic that comes into a list of theirs, or goes, has it copied first. So a page is of the
moment at which it was asked for, however many turns of the event loop it takes.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Generator
from typing import Any, Final
from urllib.parse import unquote

MOST_IN_RUN: Final = 500  # topics; to write the names of so many anew takes 0.05 to 0.4 ms, to copy them 2 µs
# Characters, kept of a run's names, 100 each, or nothing: 15 MB for 100,000 topics, and five times that where rare letters are escaped.
MOST_KEPT: Final = 50_000
PLAIN: Final = re.compile(r"[a-z0-9._~-]+")  # what stands in a name as the API has it
# Of a name in lower case, what may be PLAIN where people read it: encoded all the same, or beyond ASCII, as ß is ss.
HIDDEN: Final = re.compile("%(?:[89a-f]|2[de]|3[0-9]|[46][1-9a-f]|[57][0-9a]|5f|7e)")


class Run:
    """Some topics that follow each other."""

    __slots__ = ("hidden", "names", "places", "read", "since")

    def __init__(self, places: list[Any], since: int) -> None:
        self.places = places  # of each (protocol, topic as text, operation), in order; Any: mypyc would make a new tuple at each look
        self.since = since  # how often somebody had asked for topics when it was made
        self.names = ""  # each name in lower case, as the API has it, one a line; empty: not kept
        self.hidden = False  # whether people read in them what is PLAIN and does not stand there
        self.read = ""  # the same as people read it; empty: not kept

    def find_matching(self, words: list[str], *, decoded: bool) -> list[Any]:
        """Those whose name has each of the words, as it stands in the API or as people read it."""
        names = self.names
        if not names:
            names = self._names()
            self.hidden = HIDDEN.search(names) is not None
        read = names
        if self.hidden or (decoded and "%" in names):
            read = self.read or unquote(names.replace("%0a", "%20")).casefold()  # no word has the end of a line
        if len(names) <= MOST_KEPT:
            self.names = names
            self.read = self.read if read is names else read
        for word in words:
            if word not in names and word not in read:
                return []
        places, lines = self.places, names.split("\n")
        as_read = lines if read is names else read.split("\n")
        found = list(range(len(places)))
        for word in words:
            found = [at for at in found if word in lines[at] or word in as_read[at]]
        return places if len(found) == len(places) else [places[at] for at in found]

    def _names(self) -> str:
        names = "\n".join([place[1] for place in self.places])
        if names.count("\n") >= len(self.places):  # RocketMQ's names stand as they came
            names = "\n".join([place[1].replace("\n", " ") for place in self.places])
        return names.casefold()


class TopicIndex:
    """The topics that there are."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._firsts: list[Any] = []  # the first topic of each run
        self._asked = 0  # how often somebody has asked for topics

    def add(self, place: Any) -> None:
        """A topic that is not there yet."""
        if not self._runs:
            self._put(0, [place])
            return
        at = self._at(place)
        places = self._own_run(at).places
        insort(places, place)
        self._firsts[at] = places[0]
        if len(places) > MOST_IN_RUN:
            half = len(places) // 2
            self._put(at + 1, places[half:])
            del places[half:]

    def remove(self, place: Any) -> None:
        """A topic that is there."""
        at = self._at(place)
        places = self._own_run(at).places
        del places[bisect_left(places, place)]
        if not places:
            self._drop(at)
            return
        self._firsts[at] = places[0]
        self._join(at)
        if at:
            self._join(at - 1)

    def _at(self, place: Any) -> int:
        return max(0, bisect_right(self._firsts, place) - 1)

    def _put(self, at: int, places: list[Any]) -> None:
        self._runs.insert(at, Run(places, self._asked))
        self._firsts.insert(at, places[0])

    def _drop(self, at: int) -> None:
        del self._runs[at]
        del self._firsts[at]

    def _join(self, at: int) -> None:
        """Make one run of this and the next where both are short: there are few runs, whatever has gone."""
        if at + 1 < len(self._runs) and len(self._runs[at].places) + len(self._runs[at + 1].places) <= MOST_IN_RUN // 2:
            self._own_run(at).places.extend(self._runs[at + 1].places)
            self._drop(at + 1)

    def _own_run(self, at: int) -> Run:
        """The run there, to be changed: another one where its topics are somebody else's, too."""
        run = self._runs[at]
        if run.since < self._asked:
            run = self._runs[at] = Run(run.places.copy(), self._asked)
        run.names = run.read = ""
        return run

    def find(self, protocol: str | None, text: str) -> Generator[None, None, list[list[Any]]]:
        """The topics of a protocol (None: of all) whose name has each word of `text`, in order, as lists one after the other.

        A name has a word as it stands in the API or as people read it, in upper or lower case. As of now, in steps of a run.
        """
        first, last = 0, len(self._runs)
        if protocol is not None:
            first, last = max(0, bisect_left(self._firsts, (protocol,)) - 1), bisect_left(self._firsts, (protocol + "\0",))
        runs = self._runs[first:last]
        self._asked += 1
        words = text.casefold().split()
        decoded = not all(PLAIN.fullmatch(word) is not None for word in text.lower().split())
        found: list[list[Any]] = []
        for run in runs:
            places = run.find_matching(words, decoded=decoded) if words else run.places
            if protocol is not None and places and (places[0][0] != protocol or places[-1][0] != protocol):
                places = [place for place in places if place[0] == protocol]
            if places:
                found.append(places)
            yield
        return found

    def __repr__(self) -> str:
        return f"<TopicIndex {len(self._runs)} runs>"
