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
