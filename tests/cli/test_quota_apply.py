"""`sluice quotas plan` and `apply` of 10,000 topics against a gateway's own admin API, judge and store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from admin.endpoints.quotas import BODY_LIMIT
from limiter.quota_snapshot import dump, load
from spark_jobs.nights.gateways import LONG
from support.admin.admin_client import folder_in_memory
from support.admin.serving import Serving, serving
from support.models.quota_evidence import snapshot

TOPICS = 10_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    with ExitStack() as stack:
        yield stack.enter_context(serving(stack.enter_context(folder_in_memory(tmp_path)), "one"))


@pytest.mark.slow  # 45 MB are read three times
def test_ten_thousand_topics_are_planned_and_applied_by_hand(sluice: Any, served: Serving, tmp_path: Path) -> None:
    """With all their evidence they are beyond what a request may have. The gateway gets the short form, and the file stays whole."""
    night = snapshot(2)
    of_all = tuple(replace(night.quotas[1], topic=f"orders-{number:05d}") for number in range(TOPICS))
    whole = dump(replace(night, quotas=of_all))
    assert len(whole) > BODY_LIMIT
    file = tmp_path / "quotas.json"
    file.write_bytes(whole)
    gateway = served.gateways[0]
    at = ["--admin", "http://{}:{}".format(*gateway.address), "--token-file", gateway.folder / "admin.token"]
    planned = sluice("quotas", "plan", file, *at, "-o", "json")
    assert (planned.code, planned.json["new"], len(planned.json["changes"])) == (2, TOPICS, TOPICS)
    ran = sluice("quotas", "apply", file, "--yes", *at)
    assert ran.code == 0, ran.err
    published = load(served.ask(0, "GET", "/v1/quotas").body).quotas
    assert len(published) == TOPICS
    sent, kept = published[7], of_all[7]
    assert (sent.messages, sent.bytes) == (kept.messages, kept.bytes)
    assert set(kept.evidence) - set(sent.evidence) == LONG
    assert file.read_bytes() == whole


def test_a_plan_says_which_quotas_are_above_the_rules_that_hold_today(sluice: Any, served: Serving, tmp_path: Path) -> None:
    """Regression: a first night after a flood lifted a rule 76-fold without a word, as no rail holds a first quota."""
    gateway = served.gateways[0]
    at = ["--admin", "http://{}:{}".format(*gateway.address), "--token-file", gateway.folder / "admin.token"]

    def rule(name: str, *words: str) -> None:
        assert sluice("rules", "add", name, "--match", *words, "--yes", *at).code == 0

    rule("flooded", "topic=flooded*", "--per", "topic", "--messages", "2000/s")
    rule("sales", "topic=sales*", "--per", "topic", "--messages", "500/s", "--bytes", "1MiB/s")
    rule("roofed", "topic=roofed*", "--per", "topic", "--messages", "500/s", "--ceiling")
    rule("named", "topic=named", "--per", "topic", "--messages", "500/s")
    rates = {"flooded-1": 152_735, "sales-1": 5_447, "sales-2": 400, "sales-3": 600, "sales-4": 700, "roofed-1": 9_000, "named": 9_000}
    night = snapshot(2)
    quotas = tuple(
        replace(night.quotas[1], protocol="rocketmq", topic=name, messages=(rate, rate), bytes=None) for name, rate in rates.items()
    )
    file = tmp_path / "quotas.json"
    file.write_bytes(dump(replace(night, quotas=quotas)))

    planned = sluice("quotas", "plan", file, *at, "-o", "json")
    assert planned.code == 2
    assert [each["topic"] for each in planned.json["above_rules"]] == ["flooded-1", "sales-1", "sales-4", "sales-3"]
    assert planned.json["above_rules"][1] == {
        "protocol": "rocketmq", "topic": "sales-1", "dimension": "messages", "rule": "sales", "by_rule": 500, "by_quota": 5447,
    }  # fmt: skip
    said = sluice("quotas", "plan", file, *at).err
    assert "4 of 7 quotas are above the rule that holds today" in said
    assert "rocketmq flooded-1: 2000/s by rule flooded, 152735/s by its quota" in said
    assert "sales-4" in said
    assert "sales-3: " not in said
    assert "ceiling: true" in said
    assert "4 of 7 quotas are above" in sluice("quotas", "apply", file, "--yes", *at).err
    assert len(sluice("quotas", "plan", file, *at, "-o", "json").json["above_rules"]) == 4  # in force they still are
