"""What the soak says of numbers that rise, fall, jump, or only seem to."""

from __future__ import annotations

from random import Random

import pytest

from soak.run import CIRCLE, LIMITS, Sample, at_one_age, grown
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


def samples(name: str, *, each_round: float = 0.0, each_life: float = 0.0) -> list[Sample]:
    """Of three processes that live two circles each, and of one that lives for an hour after them."""
    steady = {"resident_mib": 50.0, "files": 12, "sockets": 7, "threads": 7, "amqp_p50_ms": 1.0, "rocketmq_p50_ms": 1.0}
    found, number = [], 0
    for life, rounds in enumerate((2 * CIRCLE, 2 * CIRCLE, 2 * CIRCLE, 60)):
        for age in range(rounds):
            values = {**steady, name: steady[name] + each_round * age + each_life * life}
            found.append(Sample(MINUTE * number, life, **values))  # type: ignore[arg-type]
            number += 1
    return found


@pytest.mark.parametrize("name", [*LIMITS, "amqp_p50_ms", "rocketmq_p50_ms"])
def test_each_of_them_is_named_when_it_grows(name: str) -> None:
    assert grown(samples(name))[1] == []
    (fault,) = grown(samples(name, each_round=1.0))[1]
    assert fault.startswith(f"{name}: ")


@pytest.mark.parametrize("name", LIMITS)
def test_what_each_process_hands_on_to_the_next_is_named(name: str) -> None:
    """Within each of them nothing grows."""
    (fault,) = grown(samples(name, each_life=LIMITS[name] / 2))[1]
    assert fault.startswith(f"{name}, from process to process: ")


def test_processes_that_begin_young_hide_no_growth() -> None:
    """Nine MiB in two circles, gone at each takeover: over all samples no slope is left."""
    (fault,) = grown(samples("resident_mib", each_round=9 / (2 * CIRCLE)))[1]
    assert fault.startswith("resident_mib: ")


def test_growth_too_slow_for_a_short_life_is_seen_by_the_hour() -> None:
    """A run of an hour or two leaves the last process so little time that its thirds are too near to each other."""
    found = grown(samples("resident_mib", each_round=10 / 60))
    assert found[0]["resident_mib"].grown < LIMITS["resident_mib"]
    assert found[1] != []


def test_a_process_that_was_cut_short_is_compared_with_none() -> None:
    whole = samples("resident_mib")
    assert at_one_age(whole, "resident_mib") == [50.0] * 4
    assert at_one_age(whole[: 3 * CIRCLE], "resident_mib") == [50.0]
