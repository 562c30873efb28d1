"""What the gateways of a fleet tell each other of their traffic, so that each can show the sum.

Each tells it once a second, beside its sign of life. It is read only while somebody looks (`Fleet.describe`), and never decides anything:
what is nonsense is left out. A gateway that has not left and has told nothing for SEEN_S is no part of the sum, and named as missing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from common.views.status import FleetMemberView

SECONDS: Final = 10  # seconds; that rates are the mean of, as everywhere
FIGURES: Final = FleetMemberView.__struct_fields__[1:]
RATES: Final = FIGURES[:4]
MAX_NAME: Final = 255  # letters; of a gateway's name that is believed
MAX_FIGURE: Final = 2**53  # of a figure that is believed: such a sum is still a number to whoever reads the JSON


class OwnFigures:
    """This gateway's figures, from the rows of each second."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seconds: deque[list[float]] = deque(maxlen=SECONDS)

    def note(self, rows: Iterable[tuple[object, Sequence[float]]], connections: int) -> str:
        """Take in what happened in a second; returns what is told: JSON, some 200 bytes.

        A row (`telemetry.series.Row`) has what was received, forwarded, refused, bytes of it, and messages that wait.
        """
        sums = [0.0] * (len(RATES) + 1)
        for _, numbers in rows:
            sums = [one + other for one, other in zip(sums, numbers, strict=True)]
        self._seconds.append(sums)
        means = [round(sum(each[at] for each in self._seconds) / len(self._seconds), 3) for at in range(len(RATES))]
        told = dict(zip(FIGURES, (*means, int(sums[-1]), connections), strict=True))
        return json.dumps({"name": self._name, **told}, separators=(",", ":"))

    def __repr__(self) -> str:
        return f"<OwnFigures of {self._name}, {len(self._seconds)} s>"


class FleetFigures(NamedTuple):
    """What the gateways have told."""

    members: list[FleetMemberView]  # by name; of the last SEEN_S
    missing: list[str]  # names of those who have told nothing since

    def sum(self) -> dict[str, float]:
        return {name: round(sum(getattr(each, name) for each in self.members), 3) for name in FIGURES}


def parse_figures(answers: Iterable[object], seen_s: float) -> FleetFigures:
    """What Redis has answered: microseconds since each was told, and the JSON. What is none is left out."""
    members, silent = [], set()
    for answer in answers:
        age, _, text = (answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)).partition(" ")
        try:
            late, told = abs(int(age)) > seen_s * 1e6, json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(told, dict) or not isinstance(told.get("name"), str):
            continue
        name = told["name"][:MAX_NAME].encode(errors="replace").decode()  # JSON can name halves of a character, which nothing can write
        numbers = {figure: told[figure] for figure in FIGURES if type(told.get(figure)) in (int, float)}
        if late:
            silent.add(name)
        elif len(numbers) == len(FIGURES) and all(0 <= value <= MAX_FIGURE for value in numbers.values()):
            members.append(FleetMemberView(name=name, **numbers))
    members.sort(key=lambda each: each.name)
    return FleetFigures(members, sorted(silent - {each.name for each in members}))
