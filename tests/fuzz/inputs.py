"""Where inputs are: the committed corpus, what was found by fuzzing, and inputs that have crashed a target; and new ones made of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from fuzz.mutators import mutated
from fuzz.mutators.octets import below, splice

HERE = Path(__file__).parent
FOUND = HERE.parent.parent / "build/fuzz"
CRASHES = HERE / "crashes"
LONGEST = 4096  # bytes of input: enough for some dozen frames


def names() -> list[str]:
    return sorted(directory.name for directory in (HERE / "corpus").iterdir())


def committed(name: str) -> Path:
    return HERE / "corpus" / name


def known(name: str, *folders: Path) -> list[bytes]:
    """The inputs of a target in the corpus and in these folders, in the order of their names."""
    places = [committed(name), *folders]
    return [path.read_bytes() for place in places if place.is_dir() for path in sorted(place.iterdir())]


def mutations(name: str, pool: list[bytes], seed: int) -> Iterator[bytes]:
    """Inputs without end, made of those in `pool`; the same for the same seed."""
    luck = Random(seed)
    while True:
        data = pool[below(luck, len(pool))]
        if luck.random() < 0.1:
            data = splice(data, pool[below(luck, len(pool))], luck)
        yield mutated(name, data, luck, LONGEST)
        if luck.random() < 0.2:  # further away from what is known
            yield mutated(name, mutated(name, data, luck, LONGEST), luck, LONGEST)
