"""The pictures of the quota report: an ordinary night of a shop after five weeks, and one that needs somebody.

cd tests && PYTHONPATH=..:. ../.venv/bin/python -m support.quota_report_pictures FOLDER     # half a minute of processor time
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from limiter.quota_snapshot import Snapshot
from spark_jobs.backtest.candidate import describe_judged_days, judge_day
from spark_jobs.method.pins import Pin
from spark_jobs.nights.night import compute_lowered_ppm, list_most_lowered
from spark_jobs.nights.plan import plan
from spark_jobs.nights.rails import Rails
from spark_jobs.parameters import Parameters
from spark_jobs.report import write_reports
from support.browser import chromium
from support.quota_weeks import weeks as generated
from support.quota_weeks.nights import Nights
from support.quota_weeks.weeks import Topic, Week, among_gateways, from_day, steady

DAYS: Final = 35  # to Sunday 5 April
PER_HOUR: Final = 150  # seconds that are generated, and stand for the whole hour: counts are told times SAMPLED
SAMPLED: Final = 3600 // PER_HOUR
GATEWAYS: Final = {"gw-a": 0.6, "gw-b": 0.4}
SHOP: Final = [
    Topic("order.created", steady(105), noise=0.15),
    Topic("order.paid", steady(72), event_share=0.05, event_size=3),
    Topic("returns", steady(57), event_share=0.08, event_size=4),
    Topic("campaign", steady(60), weekend=0.45, noise=0.35),
    Topic("search.query", steady(150), weekend=0.8, noise=0.15),
    Topic("stock.changed", steady(40), event_share=0.06, event_size=3),
    Topic("b2b.orders", steady(25), weekend=0.07, noise=0.2),
    Topic("loyalty.points", steady(18)),
    Topic("mail.sent", steady(11), weekend=0.52),
    Topic("catalogue.import", steady(0.5), jobs=4, job_rate=450, job_seconds=25, noise=0.3, weekend=1.0),
    Topic("invoice.run", steady(0.6), jobs=3, job_rate=250, job_seconds=20, noise=0.3, weekend=1.0),
    Topic("cart.updated", steady(80, 1.002)),
    Topic("price.changed", steady(6), batch=4),
    Topic("audit.log", steady(30), weekend=0.9),
    Topic("shipment.sent", steady(14)),
    Topic("user.signup", steady(0.4), batch=2),
    Topic("review.posted", steady(0.05), batch=2),
    Topic("gift.card", from_day(9, DAYS - 2)),
]
PINS: Final = [
    Pin("rocketmq", "search.query", (400.0, 4000), None, "contract with the partner", None),
    Pin("rocketmq", "order.created", (250.0, 2500), None, "the broker's order queue", None),
]
COMMAND: Final = "sluice quotas nightly --log /srv/access-log --state /srv/quota-state --token-file /etc/sluice/nightly.token"


def of_whole_days(facts: Any) -> Any:
    """Evidence with its counts of a whole day."""
    if isinstance(facts, dict):
        counted = {name: facts[name] * SAMPLED for name in ("offered", "refused", "reserved") if isinstance(facts.get(name), int | float)}
        series = {"series": [[*row[:3], row[3] and row[3] * SAMPLED, *row[4:]] for row in facts["series"]]} if "series" in facts else {}
        hours = {"refused_hours": [each * SAMPLED for each in facts["refused_hours"]]} if "refused_hours" in facts else {}
        return {name: of_whole_days(each) for name, each in facts.items()} | counted | series | hours
    return facts


def kept_nights(file: Path) -> tuple[Nights, Week]:
    """The nights but for the last one, and its day."""
    if not file.exists():
        generated.GATEWAYS = GATEWAYS  # type: ignore[misc]
        nights = Nights(known={})
        for at, week in enumerate(generated.weeks(SHOP, 4, DAYS, PER_HOUR, missing={}), 1):
            if at == DAYS:
                file.write_bytes(pickle.dumps((nights, week)))
            else:
                nights.night(week, gateways={name: {"seconds": week.observed_seconds} for name in GATEWAYS})
    found: tuple[Nights, Week] = pickle.loads(file.read_bytes())
    return found


def told(nights: Nights, week: Week, *more: str, **manifest: Any) -> tuple[Snapshot, Snapshot, dict[str, Any]]:
    """What `write_reports` is given of the last night: the snapshot, the one before it, and what was done."""
    facts, rows = nights.day(week, **manifest)
    result, live = nights.result(facts, rows).snapshot, nights.live
    assert live is not None
    found = plan(live, replace(result, computed_at="2026-04-06T00:12:09Z", code="0.9.0"), Rails())
    dates = [each.date for each in nights.manifests[-6:]] + [facts.date]
    days = [judge_day(date, each, found.publish, live) for date, each in zip(dates, [*nights.topics[-6:], rows], strict=True)]
    lowered = compute_lowered_ppm(found.publish, days)
    of: dict[str, Any] = {"lowered_ppm": lowered, "lowered_topics": list_most_lowered(days)} if lowered else {}
    for each in of.get("lowered_topics", ()):
        each["refused"] *= SAMPLED
    quotas = tuple(replace(each, evidence=of_whole_days(each.evidence)) for each in found.publish.quotas)
    publish = replace(found.publish, quotas=quotas, night={**found.publish.night, **of})
    command = [*COMMAND.split(), *more, "--date", facts.date, "--again"]
    said = {"outcome": "Published at gw-a and gw-b", "gateways": list(GATEWAYS), "command": command, "judged": describe_judged_days(days)}
    return publish, live, {**found.to_json(), **said}


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    nights, week = kept_nights(folder / "nights.pickle")
    whole = {name: {"seconds": week.observed_seconds} for name in GATEWAYS}
    calm = told(nights, week, gateways=whole)
    nights.parameters, nights.pins = Parameters(capacity_messages=500), PINS
    generated.GATEWAYS = GATEWAYS  # type: ignore[misc]
    partial = replace(week, topics=[among_gateways(each, "gw-b") for each in week.wanted])
    options = "--pins", "/etc/sluice/pins.yaml", "--capacity", "500", "--allow-partial"
    asked = told(nights, partial, *options, gateways={"gw-a": whole["gw-a"]}, missing_gateways=["gw-b"])
    with tempfile.TemporaryDirectory() as home, chromium(Path(home)) as browser:
        for name, (snapshot, before, done) in {"quota-report": calm, "quota-report-needs-operator": asked}.items():
            for form, data in write_reports(snapshot, before, done).items():
                (folder / form.replace("report", name, 1)).write_bytes(data)
            browser.open(folder / f"{name}.html", height=1450)
            browser.picture(folder / f"{name}.png")
        browser.open(folder / "quota-report-needs-operator.html", width=1000, height=1640)
        browser.picture(folder / "docs.png")  # docs/images/quota-report.png


if __name__ == "__main__":
    main(Path(sys.argv[1]))
