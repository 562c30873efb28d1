"""The figures, pictures and formulae of `bench/scale`, on numbers that are known."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))

from scale import capacity, figures, growth, idle, plots, run, soak, stalls, workers  # noqa: E402  -- bench is not on the path before

SVG = "{http://www.w3.org/2000/svg}"


# ---- idle ------------------------------------------------------------------------------------------------------------


def test_heartbeats_that_have_not_come_are_not_waited_for() -> None:
    """The ends have a time-out, which a read with MSG_DONTWAIT waits for all the same: of 5,000 heartbeats 3 were sent."""
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(0.1)
        idle.drain(here)  # raised TimeoutError
        there.sendall(idle.AMQP_HEARTBEAT)
        idle.drain(here)
        with pytest.raises(BlockingIOError):
            here.recv(1, socket.MSG_DONTWAIT)


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_the_slope_of_a_straight_line_is_its_own_and_has_no_error() -> None:
    assert figures.slope([(0, 5), (1, 7), (2, 9), (3, 11)]) == figures.Slope(2.0, 0.0)


def test_the_slope_of_scattered_points_is_the_one_of_least_squares_with_its_standard_error() -> None:
    found = figures.slope([(0, 1), (1, 3), (2, 2), (3, 5)])
    assert found.per_x == pytest.approx(1.1)
    assert found.error == pytest.approx((2.7 / 2 / 5) ** 0.5)


@pytest.mark.parametrize("points", [[], [(1, 2)], [(1, 2), (1, 3)]])
def test_one_moment_has_no_slope(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="two points"):
        figures.slope(points)


@pytest.mark.parametrize(
    ("slope", "flat"),
    [((0.9, 0.0), True), ((1.1, 0.0), False), ((5.0, 2.4), False), ((5.0, 2.5), True), ((-9.0, 0.1), True)],
)
def test_a_slope_is_flat_within_the_tolerance_or_twice_its_error(slope: tuple[float, float], flat: bool) -> None:
    assert figures.Slope(*slope).is_flat(1.0) == flat


def test_a_ratio_is_taken_round_by_round() -> None:
    """The machine was twice as slow in the second round; the ratio does not see it."""
    assert figures.ratio([1.1, 2.2, 1.1], [1.0, 2.0, 1.0]) == figures.Spread(1.1, 1.1, 1.1)


def test_rounds_that_are_missing_on_one_side_are_no_ratio() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        figures.ratio([1.0], [1.0, 2.0])


def test_a_spread_says_median_unit_and_half_the_width() -> None:
    assert figures.spread([10.0, 12.0, 9.0]).said("µs") == "10.00 µs ±15%"


def test_the_table_says_which_goals_were_missed() -> None:
    rows = [figures.at_most("a", 3.0, 2, "MB"), figures.at_most("b", 2.0, 2, "MB"), figures.Row("c", "7")]
    assert figures.table(rows).splitlines() == [
        "|   | found   | goal   |            |",
        "|---|---------|--------|------------|",
        "| a | 3.00 MB | ≤ 2 MB | **missed** |",
        "| b | 2.00 MB | ≤ 2 MB | reached    |",
        "| c | 7       |        |            |",
    ]


# ---- what a long answer is blamed on -----------------------------------------------------------------------------------

SCRAPE = stalls.Happening("scrape", 10.00, 10.02)
AT_HALF_PAST = 0.5  # to be added to monotonic seconds: they end half a second after those of the wall clock


@pytest.mark.parametrize(
    ("at", "took", "direct", "causes"),
    [
        (9.99, 0.02, [], ["scrape"]),
        (10.03, 0.02, [], ["unknown"]),
        (10.01, 0.001, [[10.01, 600.0]], ["scrape", "the machine"]),
        (10.01, 0.001, [[10.01, 400.0]], ["scrape"]),
        (10.40, 0.2, [], ["end of a second"]),
        (10.52, 0.001, [], ["end of a second"]),
    ],
)
def test_causes_of_a_long_answer(at: float, took: float, direct: list[list[float]], causes: list[str]) -> None:
    assert stalls.causes(at, took, [SCRAPE], direct, AT_HALF_PAST) == causes


# ---- tables out of results ---------------------------------------------------------------------------------------------


def soaked(rising: float) -> dict[str, object]:
    """Results of a soak whose memory grows so many bytes a second."""
    plan = soak.Plan(seconds=100.0)
    pieces = [
        {"kind": kind, "at": at, "resident": 50e6 + rising * at, "messages": 10, "cpu_us": 2.0}
        for at in range(0, 100, 5)
        for kind in soak.STAND_INS
    ]
    left = {"resident": 50e6, "descriptors": 9, "threads": 3, "connections": 0.0}
    return {"plan": vars(plan), "pieces": pieces, "before": left, "after": left}


@pytest.mark.parametrize(("rising", "reached"), [(0.0, True), (1000.0, True), (10_000.0, False)])
def test_a_soak_whose_memory_creeps_misses_its_goal(rising: float, reached: bool) -> None:
    by_name = {row.what: row.reached for row in soak.rows(soaked(rising))}
    assert by_name["resident memory, after the warm-up"] is reached


def test_a_soak_that_leaves_a_descriptor_open_misses_its_goal() -> None:
    found = soaked(0.0)
    found["after"] = {"resident": 50e6, "descriptors": 10, "threads": 3, "connections": 0.0}
    by_name = {row.what: row.reached for row in soak.rows(found)}
    assert by_name["descriptors before and after"] is False
    assert by_name["threads before and after"] is True


def test_processor_time_of_sluice_and_of_all_on_the_machine_is_told_apart() -> None:
    probes = {name: {"worst": [[0.0, 1.0]], "p50_us": 1, "p99_us": 1, "p999_us": 1} for name in ("sluice", "direct", "traffic")}
    found = {"plan": vars(stalls.Plan()), "probes": probes, "worst": [], "happened": [], "processor": 0.24, "processors_busy": 0.46}
    row = stalls.rows(found)[-1]
    assert (row.what.strip(), row.found) == ("processors kept busy, on average", "by sluice 0.24, by all on this machine 0.46")


def test_two_workers_that_carry_less_than_the_goal_miss_it() -> None:
    def runs(messages: int) -> list[dict[str, float]]:
        return [{"messages": messages, "seconds": 1.0, "cpu_us": 20.0, "processors_busy": 1.5}] * 3

    found = {"runs": {"held": [runs(1000), runs(1700)]}, "connections_of_workers": {"10": [4, 6]}, "processors": 2}
    assert [row.reached for row in workers.rows(found) if row.goal] == [False]


# ---- pictures ------------------------------------------------------------------------------------------------------------


def grown(cost: float) -> dict[str, object]:
    """Results of `growth` in which everything costs the same at every point."""
    plan = growth.Plan(rounds=1)
    places = {name: [{"point": vars(point), "runs": [{"cpu_us": cost}]} for point in points] for name, points in plan.points().items()}
    return {"plan": json.loads(json.dumps(vars(plan), default=vars)), "growth": places}


def test_a_picture_has_a_panel_for_each_thing_that_grows_and_a_point_for_each_factor() -> None:
    drawn = ElementTree.fromstring(plots.growth(grown(40.0)))
    assert len(drawn.findall(f"{SVG}polyline")) == 4
    assert len(drawn.findall(f"{SVG}circle")) == 12


def test_a_constant_cost_is_drawn_as_a_level_line() -> None:
    drawn = ElementTree.fromstring(plots.growth(grown(40.0)))
    for line in drawn.findall(f"{SVG}polyline"):
        heights = {point.split(",")[1] for point in line.attrib["points"].split()}
        assert len(heights) == 1


@pytest.mark.parametrize(("value", "end"), [(1.0, 1.0), (1.1, 2.0), (34.0, 40.0), (81.0, 100.0), (0.03, 0.04)])
def test_axes_end_at_round_numbers(value: float, end: float) -> None:
    assert plots.ceiling(value) == pytest.approx(end)


def test_the_picture_in_the_docs_is_drawn_from_the_results_beside_it() -> None:
    """Otherwise: `PYTHONPATH=tests python bench/scale/run.py plots`."""
    found = run.found_in(run.file_of(run.RESULTS, "growth", quick=False))
    assert run.PICTURE.read_text() == plots.growth(found)


# ---- capacity --------------------------------------------------------------------------------------------------------------

MEASURED = capacity.Measured(request_us=35.0, stream_us=1.0, connection_bytes=10_000.0, base_bytes=50e6, gain=1.9)


def test_a_sidecar_holds_what_its_core_has_room_for() -> None:
    assert capacity.messages(35.0) == pytest.approx(20_000)


def test_workers_add_what_the_second_added() -> None:
    assert capacity.messages(35.0, workers=4, gain=1.9) == pytest.approx(20_000 * (1 + 3 * 0.9))


def test_no_worker_is_taken_to_add_more_than_one_carries_alone() -> None:
    """A gain of 2.08 is noise of the measurement; eight workers are not 8.6."""
    assert capacity.messages(35.0, workers=8, gain=2.08) == pytest.approx(8 * capacity.messages(35.0))


@pytest.mark.parametrize(
    ("descriptors", "memory", "held"),
    [
        (20_000, 1e9, (20_000 - 544 - 96) // 2),  # descriptors end first: what the gateway keeps for itself, and two for each
        (1_048_576, 150e6, 10_000),  # memory does
    ],
)
def test_connections_end_with_descriptors_or_with_memory(descriptors: int, memory: float, held: int) -> None:
    assert capacity.connections(descriptors, memory, MEASURED) == held


def test_a_redis_has_room_for_fewer_limits_the_more_gateways_ask() -> None:
    assert [capacity.shared_limits(gateways) for gateways in (1, 10)] == [2000, 200]


def test_the_table_promises_no_more_than_two_digits() -> None:
    figures_of = [cell.strip().replace(",", "") for row in capacity.table(MEASURED).splitlines()[2:] for cell in row.split("|")[2:-1]]
    assert len(figures_of) == 27
    assert all(len(figure.rstrip("0")) <= 2 for figure in figures_of)


# ---- the program -------------------------------------------------------------------------------------------------------------


def test_numbers_of_a_plan_can_be_changed() -> None:
    assert run.changed(soak.Plan(), ["seconds=60", "topics=5"]) == soak.Plan(seconds=60.0, topics=5)


@pytest.mark.parametrize("setting", ["second=60", "seconds", "factors=1"])
def test_settings_that_a_plan_does_not_have_are_refused(setting: str) -> None:
    with pytest.raises((SystemExit, ValueError)):
        run.changed(growth.Plan(), [setting])
