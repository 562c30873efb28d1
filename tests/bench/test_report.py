"""The benchmark's tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from records import BETTER, Bench, Goal, Run
from report import bar, goal_rows, markdown_table, middle, number, promise, ratios, report, work_rows


def rows(bench: Bench) -> dict[tuple[str, str], list[str]]:
    """Found and reached, by work and goal."""
    return {(work, goal): rest for work, goal, *rest in goal_rows(bench)}


def test_ratios_are_taken_within_a_round(made_up: Callable[..., Bench]) -> None:
    """In the second round everything is slow: the machine did something else."""
    bench = made_up()
    replies, stream, refused = bench.works
    assert ratios(Goal("cpu", 1.0), replies, bench) == pytest.approx([0.9, 1.5, 0.8])
    assert ratios(Goal("cpu", 1.0, of="envoy"), replies, bench) == pytest.approx([0.45, 0.75, 0.32])
    assert ratios(Goal("rate", 1.0), stream, bench) == pytest.approx([1.0, 0.95, 1.2])
    assert ratios(Goal("cpu", 1.0, of="sluice", work="replies"), refused, bench) == pytest.approx([1.0, 0.5, 0.5])


def test_added_latency_is_what_comes_on_top_of_the_direct_one(made_up: Callable[..., Bench]) -> None:
    bench = made_up()
    assert ratios(Goal("added_p50", 1.2), bench.works[0], bench) == pytest.approx([22 / 20, 26 / 20, 18 / 20])


def test_a_proxy_as_fast_as_none_gives_no_ratio(made_up: Callable[..., Bench], one_run: Callable[..., Run]) -> None:
    bench = made_up()
    bench.results["replies"]["haproxy"][0] = one_run(10, 10)
    assert ratios(Goal("added_p50", 1.2), bench.works[0], bench) == pytest.approx([26 / 20, 18 / 20])


def test_the_better_of_two_peers_is_the_bar(made_up: Callable[..., Bench], one_run: Callable[..., Run]) -> None:
    bench = made_up(replies={**made_up().results["replies"], "envoy": [one_run(5, 60)] * 3})
    replies, stream, _ = bench.works
    assert [bar(Goal(measure, 1.0, of=BETTER), "replies", bench) for measure in ("cpu", "added_p50")] == ["envoy", "haproxy"]
    assert ratios(Goal("cpu", 1.0, of=BETTER), replies, bench) == pytest.approx([9 / 5, 30 / 5, 8 / 5])
    assert promise(Goal("cpu", 1.0, of=BETTER), replies, bench) == "CPU per message ≤ 1.0 times Envoy's"
    assert bar(Goal("rate", 1.0, of=BETTER), stream.name, bench) == "haproxy", "Envoy was not measured"
    bench.results["stream"]["envoy"] = [one_run(1, messages=9000)] * 3
    assert bar(Goal("rate", 1.0, of=BETTER), stream.name, bench) == "envoy"


def test_each_goal_says_what_was_found_and_whether_it_is_reached(made_up: Callable[..., Bench]) -> None:
    assert rows(made_up()) == {
        ("replies", "CPU per message ≤ 1.0 times HAProxy's"): ["0.90 (0.80-1.50)", "yes"],
        ("replies", "CPU per message ≤ 0.8 times Envoy's"): ["0.45 (0.32-0.75)", "yes"],
        ("replies", "added p50 ≤ 1.2 times HAProxy's"): ["1.10 (0.90-1.30)", "yes"],
        ("stream", "messages/s ≥ 1.0 times HAProxy's"): ["1.00 (0.95-1.20)", "yes"],
        ("replies, refused", "CPU per message ≤ 1.0 times that of all passed"): ["0.50 (0.50-1.00)", "yes"],
    }


def test_a_goal_that_is_missed_is_said_to_be(made_up: Callable[..., Bench], one_run: Callable[..., Run]) -> None:
    bench = made_up(
        stream={"haproxy": [one_run(1, messages=1000)] * 3, "sluice": [one_run(1, messages=900 + more) for more in (0, 50, 300)]}
    )
    assert rows(bench)["stream", "messages/s ≥ 1.0 times HAProxy's"] == ["0.95 (0.90-1.20)", "no"]


def test_a_goal_that_was_not_measured_is_not_reached(made_up: Callable[..., Bench]) -> None:
    bench = made_up()
    del bench.results["replies"]["envoy"]
    assert rows(bench)["replies", "CPU per message ≤ 0.8 times Envoy's"] == ["-", "not measured"]


def test_a_line_for_each_peer_with_its_costs_rates_and_latencies(made_up: Callable[..., Bench]) -> None:
    assert list(work_rows(made_up()))[:4] == [
        ["replies", "direct", "-", "-", "-", "500", "1.00 (1.00-1.00)", "10.0", "-", "-"],
        ["", "HAProxy", "10.0 (10.0-20.0)", "2.50 + 7.50", "-", "500", "-", "30.0", "-", "-"],
        ["", "Envoy", "25.0 (20.0-40.0)", "6.25 + 18.8", "2.00 (2.00-2.50)", "500", "1.00 (1.00-1.00)", "40.0", "-", "-"],
        ["", "sluice", "9.00 (8.00-30.0)", "2.25 + 6.75", "0.90 (0.80-1.50)", "500", "1.00 (1.00-1.00)", "32.0", "-", "-"],
    ]


@pytest.mark.parametrize(("value", "text"), [(0.193, "0.19"), (9.876, "9.88"), (31.25, "31.2"), (1234567.8, "1,234,568")])
def test_numbers_have_as_many_digits_as_mean_something(value: float, text: str) -> None:
    assert number(value) == text


def test_no_values_have_no_median() -> None:
    assert middle([]) == "-"


def test_tables_are_padded_words_to_the_left_and_numbers_to_the_right() -> None:
    assert markdown_table(["what", "n"], [["a", "10,000"], ["longer", "7"]], 1).splitlines() == [
        "| what   |      n |",
        "|--------|-------:|",
        "| a      | 10,000 |",
        "| longer |      7 |",
    ]


def test_the_page_says_on_what_it_was_measured(made_up: Callable[..., Bench]) -> None:
    page = report(made_up())
    assert page.startswith("# Benchmark of 2026-11-22T05:00:00+00:00\n")
    assert "2 virtual processors (Some CPU <2>), 24 GiB, Linux 6.1, Python 3.11.7, TCP's congestion control bbr; HAProxy 2.6.12." in page
    assert "Load average before: 0.07; stolen by the hypervisor during the run: 1.1%." in page
    assert "without load: HAProxy 0.10 s, 14 MiB; sluice 0.40 s, 43 MiB." in page
