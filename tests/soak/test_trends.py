"""What the soak says of numbers that rise, fall, jump, or only seem to."""

from __future__ import annotations

from random import Random

import pytest

from soak.run import LIMITS, Sample, grown
from soak.trends import trend

MINUTE = 60.0


def numbers(*values: float) -> list[tuple[float, float]]:
    return [(MINUTE * number, value) for number, value in enumerate(values)]


def test_what_rises_all_the_time_is_seen_through_noise() -> None:
    chance = Random(1)
    found = trend(numbers(*(100 + 0.1 * number + chance.gauss(0, 1) for number in range(120))))
    assert found.per_hour == pytest.approx(6, abs=0.5)
    assert found.grown == pytest.approx(6, abs=1)


def test_what_rises_at_the_beginning_only_has_not_grown() -> None:
    assert trend(numbers(*range(30), *(30 for _ in range(90)))).grown == 0


def test_one_wild_number_is_not_growth() -> None:
    assert trend(numbers(*(50 for _ in range(60)), 500, *(50 for _ in range(59)))).grown == 0


def test_what_falls_has_not_grown() -> None:
    assert trend(numbers(*range(100, 0, -1))).grown < 0


def test_one_step_that_stays_is_growth() -> None:
    assert trend(numbers(*(12 for _ in range(70)), *(512 for _ in range(50)))).grown == 500


def test_too_few_samples_say_so() -> None:
    with pytest.raises(ValueError, match="run longer"):
        trend(numbers(1, 2, 3, 4, 5, 6))


def samples(name: str, per_round: float) -> list[Sample]:
    steady = {"resident_mib": 50.0, "files": 12, "sockets": 7, "threads": 7, "amqp_p50_ms": 1.0, "rocketmq_p50_ms": 1.0}
    return [Sample(MINUTE * number, **{**steady, name: steady[name] + per_round * number}) for number in range(60)]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*LIMITS, "amqp_p50_ms", "rocketmq_p50_ms"])
def test_each_of_them_is_named_when_it_grows(name: str) -> None:
    assert grown(samples(name, 0.0))[1] == []
    (fault,) = grown(samples(name, 1.0))[1]
    assert fault.startswith(f"{name}: ")
