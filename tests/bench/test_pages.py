"""Pages that the benchmark opens ask a real gateway for what the dashboard asks for, and what is refused ends the benchmark."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pages
import pytest

from support.gateways import Gateway
from support.processes import LOOPBACK, free_ports, wait_until

DASHBOARD = Path(__file__).parents[2] / "admin" / "dashboard"


def test_they_have_a_snapshot_a_second_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{free_ports(1)[0]}"}
    with Gateway(tmp_path / "gateway", [listener], [], until="/livez") as gateway:
        admin = pages.Admin(gateway.admin_port, gateway.directory / "state" / "admin.token")
        with pages.open_pages(admin, 3) as found:
            wait_until(lambda: all(page.snapshots >= 2 and page.answers >= 2 for page in found), within=60, what="snapshots and answers")
            assert gateway.get("/v1/status")["ready"] is False
            began = time.monotonic()
        assert time.monotonic() - began < pages.PATIENCE_S, "they are closed at once"
        with pages.open_pages(None, 3) as none:
            assert none == []
        monkeypatch.setattr(pages, "OVERVIEW", {"/v1/no-such-thing": 1.0})
        with pytest.raises(SystemExit, match="/v1/no-such-thing: 404"), pages.open_pages(admin, 1) as wrong:
            wait_until(lambda: bool(wrong[0].faults), within=60, what="a refusal")


def test_they_ask_for_what_the_dashboard_asks_for() -> None:
    assert re.search(r'const ADDRESS = "([^"]+)"', (DASHBOARD / "stream.js").read_text())[1] == pages.STREAM  # type: ignore[index]
    read = (DASHBOARD / "screen_data.js").read_text()
    for path in pages.TOPIC:
        assert path.partition("?")[0].removesuffix("/rocketmq/bench") in {"/v1/series", "/v1/limits", "/v1/topics", "/v1/clients"}
    assert "/v1/topics?protocol=${protocol}&topic=${name}" in read
    assert "/v1/topics?protocol=rocketmq&topic=bench" in pages.TOPIC
    assert "/v1/clients?protocol=${protocol}&q=${name}&limit=500" in read
    assert "&since=" in read
