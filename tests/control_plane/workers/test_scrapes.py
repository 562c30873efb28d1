"""Several processes' metrics as one: counters are sums and never fall, gauges that are no sums say whose they are."""

from __future__ import annotations

from control_plane.workers.scrapes import Family, add, lines, merge_families, parse
from gateway.telemetry import exposition

COUNTED = "sluice_retries_refused_total"
APART = "sluice_memory_full"  # a gauge that is told apart by worker
WAITING = "sluice_messages_waiting"  # a gauge that is a sum
TIMED = "sluice_overhead_seconds"
THE_PARENTS = "sluice_config_version"

ONE = f"""\
# HELP {COUNTED} A.
# TYPE {COUNTED} counter
{COUNTED}{{group="x"}} 3
{COUNTED}{{group="y \\"z\\""}} 1
# HELP {APART} G.
# TYPE {APART} gauge
{APART} 5
# HELP {WAITING} W.
# TYPE {WAITING} gauge
{WAITING}{{topic="x"}} 2
# HELP {TIMED} H.
# TYPE {TIMED} histogram
{TIMED}_bucket{{le="0.1"}} 1
{TIMED}_bucket{{le="+Inf"}} 2
{TIMED}_sum 0.75
{TIMED}_count 2
# HELP {THE_PARENTS} V.
# TYPE {THE_PARENTS} gauge
{THE_PARENTS} 9
"""


def text(totals: dict[str, Family]) -> str:
    return "".join(line for line in lines(totals) if not line.startswith("#"))


def test_one_process_alone_is_as_it_was_but_for_its_gauges_label_and_the_parents_own() -> None:
    expected = ONE.partition(f"# HELP {THE_PARENTS}")[0].replace(f"\n{APART} 5", f'\n{APART}{{worker="1"}} 5')
    assert "".join(lines(merge_families([("1", parse(ONE))], {}))) == expected


def test_counters_and_histograms_are_sums_and_other_gauges_are_told_apart() -> None:
    assert text(merge_families([("1", parse(ONE)), ("2", parse(ONE))], {})).splitlines() == [
        f'{COUNTED}{{group="x"}} 6', f'{COUNTED}{{group="y \\"z\\""}} 2',
        f'{APART}{{worker="1"}} 5', f'{APART}{{worker="2"}} 5',
        f'{WAITING}{{topic="x"}} 4',
        f'{TIMED}_bucket{{le="0.1"}} 2', f'{TIMED}_bucket{{le="+Inf"}} 4', f"{TIMED}_sum 1.5", f"{TIMED}_count 4",
    ]  # fmt: skip


def test_a_worker_that_has_ended_goes_on_counting_and_measures_nothing_any_more() -> None:
    ended: dict[str, Family] = {}
    add(ended, parse(ONE), None)
    add(ended, parse(ONE), None)
    assert text(merge_families([("1", parse(ONE))], ended)).splitlines()[:4] == [
        f'{COUNTED}{{group="x"}} 9', f'{COUNTED}{{group="y \\"z\\""}} 3', f'{APART}{{worker="1"}} 5', f'{WAITING}{{topic="x"}} 2',
    ]  # fmt: skip


def test_names_with_other_ends_of_lines_stay_whole() -> None:
    """A RocketMQ client may name a topic so. The report did not parse, and its worker was killed."""
    names = ("a\rb", "a\vb", "a\fb", "a\x1cb", "a\x85b", "a\u2028b", "a\u2029b")
    family = parse("".join(exposition.family(COUNTED, [((name,), 1.0) for name in names])))[COUNTED]
    assert family.series == {f'{COUNTED}{{group="{name}"}}': 1.0 for name in names}


def test_series_that_only_one_has_are_kept() -> None:
    other = f'# HELP {COUNTED} A.\n# TYPE {COUNTED} counter\n{COUNTED}{{group="new"}} 1\n'
    assert f'{COUNTED}{{group="new"}} 1' in text(merge_families([("1", parse(ONE)), ("2", parse(other))], {}))
