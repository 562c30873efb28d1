"""The report of a night: the quotas, their changes and the reasons, and how well they did; as HTML, Markdown and JSON.

    facts.py -> digest.py -> page.py (HTML), markdown.py, digest.to_json
    text.py: one topic for a terminal of 80 columns

Pure: a snapshot in, bytes out. No network, no clock and no Spark; standard library only, and `limiter.quota_snapshot`. Equal input gives
equal bytes. A value that a snapshot does not have (an older one, the first night) reads "not known yet".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from limiter.quota_snapshot import Snapshot, normal
from spark_jobs.report.digest import digest, to_json
from spark_jobs.report.markdown import render_markdown
from spark_jobs.report.page import render_page


def write_reports(
    snapshot: Snapshot,
    before: Snapshot | None = None,
    plan: Mapping[str, Any] | None = None,
    backtest: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """`report.html`, `report.md` and `report.json` of `snapshot`.

    `before`: the snapshot it replaces; without it the change is told against the quota in force on the last day.
    `plan`: `guard_rails` (a list of sentences), `outcome` (one sentence: what was done with the snapshot) and `judged` (one: what it would
    have refused on past days).
    `backtest`: `totals` (`published` and others, each with `offered`, `refused`, `reserved`), `from`, `to`. Other members are left out.
    """
    found = digest(snapshot, before, plan, backtest)
    twin = json.dumps(normal(to_json(found)), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return {"report.html": render_page(found).encode(), "report.md": render_markdown(found).encode(), "report.json": twin.encode() + b"\n"}
