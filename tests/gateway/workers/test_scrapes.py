"""Several processes' metrics as one: counters are sums and never fall, gauges that are no sums say whose they are."""

from __future__ import annotations

from gateway.workers.scrapes import Family, add, lines, merged, parse

ONE = """\
# HELP a_total A.
# TYPE a_total counter
a_total{t="x"} 3
a_total{t="y \\"z\\""} 1
# HELP g G.
# TYPE g gauge
g 5
# HELP sluice_messages_waiting W.
# TYPE sluice_messages_waiting gauge
sluice_messages_waiting{t="x"} 2
# HELP h H.
# TYPE h histogram
h_bucket{le="0.1"} 1
h_bucket{le="+Inf"} 2
h_sum 0.75
h_count 2
# HELP sluice_config_version V.
# TYPE sluice_config_version gauge
sluice_config_version 9
"""


def text(totals: dict[str, Family]) -> str:
    return "".join(line for line in lines(totals) if not line.startswith("#"))


def test_one_process_alone_is_as_it_was_but_for_its_gauges_label_and_the_parents_own() -> None:
    assert "".join(lines(merged([("1", parse(ONE))], {}))) == ONE.partition("# HELP sluice_config")[0].replace("\ng 5", '\ng{worker="1"} 5')


def test_counters_and_histograms_are_sums_and_other_gauges_are_told_apart() -> None:
    both = merged([("1", parse(ONE)), ("2", parse(ONE))], {})
    assert text(both) == (
        'a_total{t="x"} 6\na_total{t="y \\"z\\""} 2\ng{worker="1"} 5\ng{worker="2"} 5\nsluice_messages_waiting{t="x"} 4\n'
        'h_bucket{le="0.1"} 2\nh_bucket{le="+Inf"} 4\nh_sum 1.5\nh_count 4\n'
    )


def test_a_worker_that_has_ended_goes_on_counting_and_measures_nothing_any_more() -> None:
    ended: dict[str, Family] = {}
    add(ended, parse(ONE), None)
    add(ended, parse(ONE), None)
    assert text(merged([("1", parse(ONE))], ended)).splitlines()[:4] == [
        'a_total{t="x"} 9', 'a_total{t="y \\"z\\""} 3', 'g{worker="1"} 5', 'sluice_messages_waiting{t="x"} 2',
    ]  # fmt: skip


def test_series_that_only_one_has_are_kept() -> None:
    other = '# HELP a_total A.\n# TYPE a_total counter\na_total{t="new"} 1\n'
    assert 'a_total{t="new"} 1' in text(merged([("1", parse(ONE)), ("2", parse(other))], {}))
