"""One night of quotas, from the log to the gateways, which may be run again at any time.

::

    read the gateways ─► done already? ─► missed days, oldest first ─► the day ─► is it complete? ─► plan ─► backtest ─► publish ─► report

Gateways come first: one that is away ends the night before Spark starts. Nothing is published before everything else has gone well, and
then at all gateways or at none. The progress of a night is kept in `STATE/nights` (`files.py`), so a second run of a night changes
nothing, one that was cut off is finished, and quotas that somebody took back are not forced on them again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.failures import CONFLICT, FAILED, INTERRUPTED, NOT_AUTHORISED, UNREACHABLE, USAGE, Failure
from common.figures import pluralise
from limiter.quota_snapshot import JSON, Quota, Snapshot
from spark_jobs.log.counted import unmark_counted
from spark_jobs.nights.files import APPLIED, BEGUN, PLAN, PREVIOUS, QUOTAS, REPORT, Nights, find_missed_days, list_log_days
from spark_jobs.nights.gateways import (
    ENFORCE,
    SHADOW,
    FleetPublication,
    ReadGateway,
    as_number,
    group_by_pool,
    merge_snapshots,
    refuse_one_name,
    split_by_pool,
)
from spark_jobs.nights.plan import QuotaPlan, describe_held, plan
from spark_jobs.nights.rails import Rails, describe_way_out, is_pinned

if TYPE_CHECKING:
    from spark_jobs.backtest.candidate import JudgedDay
    from spark_jobs.storage.location import Location

DONE: Final = 0
STOPPED: Final = 3  # a rail or the backtest: nothing was published
GATEWAYS: Final = 4  # one is away, refuses the token, or has other quotas by now: nothing was published
INSUFFICIENT: Final = 5  # too little input
MILLION: Final = 1_000_000
COMPUTED_WITH: Final = "computed_with"  # a member of begun.json, beside the gateways' addresses
MIN_OFFERED: Final = 1000  # messages; of fewer a share of refusals says little; as admin.quota_watch
MOST_LOWERED: Final = 20  # topics; the report shows the first ten
GO_ON: Final = "run it again, and it goes on where it stopped; `sluice quotas status` says what is in force"
WORSE_THAN_SIMPLE: Final = 2.0  # times the refusals of yesterday's maximum; below that the days were hard, not the method bad (guess)

Compute = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a night. Shares are 0..1."""

    log: Location
    state: Location
    date: str  # YYYY-MM-DD
    zone: str = "UTC"
    remember_days: int = 60
    master: str = "local[*]"
    shadow_nights: int = 0
    shadow_again: bool = False  # a trial that was finished before does not count
    return_margin: float | None = 0.05  # margin over the backtest's promise; None: quotas are never returned
    max_would_refuse: float = 0.05
    rails: Rails = field(default_factory=Rails)
    allow_partial: bool = False
    again: bool = False
    dry_run: bool = False
    compute: dict[str, Any] = field(default_factory=dict)  # further arguments of the computation
    command: tuple[str, ...] = ()  # the night's command, as a person types it, for the report

    def describe_computation(self) -> str:
        """The arguments that change the result of the computation, as text: a night that is run again with others is computed again. The
        content of a file of pins counts, too."""
        named = {name: value for name, value in self.compute.items() if value not in (None, (), "")}
        for name in ("driver_memory", "conf"):
            named.pop(name, None)
        with suppress(OSError, ValueError):  # a file elsewhere, or none: the computation says so
            named["pins_sha256"] = hashlib.sha256(Path(str(named["pins"])).read_bytes()).hexdigest() if named.get("pins") else None
        return json.dumps({**named, "allow_partial": self.allow_partial}, sort_keys=True, default=str)

    def describe(self) -> dict[str, Any]:
        """All options of a finished night, by name."""
        return {
            **json.loads(self.describe_computation()), **asdict(self.rails), "shadow_nights": self.shadow_nights,
            "shadow_again": self.shadow_again, "return_margin": self.return_margin, "max_would_refuse": self.max_would_refuse,
        }  # fmt: skip


@dataclass
class Result:
    """The end of a night: its exit code, a sentence, and the place of its report."""

    code: int
    outcome: str
    report: Location | None = None
    html: bytes = b""


@contextmanager
def open_storages(options: Options) -> Iterator[tuple[Any, Any]]:
    """The storages of log and state. Where one of them is not of this machine, Spark runs meanwhile, and the computation uses it."""
    from spark_jobs.storage.choice import storage_for

    if options.log.is_local and options.state.is_local:
        yield storage_for(options.log), storage_for(options.state)
        return
    from spark_jobs.session import spark_session
    from spark_jobs.sizing import UNKNOWN_BYTES, parse_conf_options

    memory, conf = options.compute.get("driver_memory"), parse_conf_options(options.compute.get("conf") or ())
    with spark_session(options.master, log_bytes=UNKNOWN_BYTES, driver_memory=memory, conf=conf) as spark:
        yield storage_for(options.log, spark), storage_for(options.state, spark)


class Nightly:
    """One run. `compute` is `spark_jobs.commands.compute`; `tell` has sentences for the person at the terminal."""

    def __init__(
        self, options: Options, gateways: Sequence[ReadGateway], compute: Compute, storages: tuple[Any, Any], tell: Callable[[str], None]
    ) -> None:
        self._options = options
        self._gateways = list(gateways)
        self._pools = group_by_pool(self._gateways)
        self._compute = compute
        self._tell = tell
        self._log, self._state = storages
        self._nights = Nights(self._state, options.state)
        self._before: Snapshot  # the one that was live when the night was begun
        self._judged = ""  # a sentence: what tonight's quotas would have refused

    def run(self) -> Result:
        """Run the night. Raises Failure with the exit code."""
        date, nights = self._options.date, self._nights
        refuse_one_name(self._pools)
        for gateway in self._gateways:
            back = (gateway.record(ENFORCE) or {}).get("put_back")
            if back:
                self._tell(f"{gateway.name}: the quotas in force were put back at {back}; `sluice history list` says why")
        applied = nights.read_applied(date).get("gateways", {})
        if applied and not self._options.again and all(gateway.url in applied for gateway in self._gateways):
            self._refuse_other_options()
            return Result(DONE, self._describe_done(applied), nights.file(date, REPORT), nights.read(date, REPORT) or b"")
        self._begin()
        snapshot = nights.read_snapshot(date, QUOTAS)
        if snapshot is None:
            code = self._compute_days()
            if code == INTERRUPTED:
                return Result(code, f"interrupted: nothing was published; {GO_ON}")
            if code:
                return Result(code, f"nothing was published: the computation of {date} ended with {code}")
            snapshot = nights.read_snapshot(date, QUOTAS)
            if snapshot is None:
                raise Failure(FAILED, f"{nights.file(date, QUOTAS).shown} was not written; nothing was published")
        missing = self._missing_gateways()
        if missing and not self._options.allow_partial:
            nights.forget(date, state=True)  # with the log that is missing it is another night, tomorrow as well
            unmark_counted(self._options.log, date)
            why = f"the log of {date} has nothing of {', '.join(missing)}, which ran all day; ship it, or --allow-partial"
            return self._end(INSUFFICIENT, plan(self._before, snapshot, None), f"nothing was published: {why}", [why])
        return self._publish(snapshot)

    def _refuse_other_options(self) -> None:
        """Raise Failure where the night is published with other options: none is left aside without a word."""
        told = self._nights.read_applied(self._options.date).get("options")
        given = json.loads(json.dumps(self._options.describe(), default=str))
        if not isinstance(told, dict):
            return
        other = [
            f"{name} {told.get(name)!r}, now {given.get(name)!r}" for name in sorted({*told, *given}) if told.get(name) != given.get(name)
        ]
        if other:
            raise Failure(
                USAGE,
                f"the night of {self._options.date} is published, and was told something else: {'; '.join(other)}. "
                "--again computes and publishes it anew with these; the night to come takes them in any case",
            )

    def _begin(self) -> None:
        """Go on with the night where it stopped, or begin it, with the quotas that are live now as those before."""
        options, nights = self._options, self._nights
        before = nights.read_snapshot(options.date, PREVIOUS)
        begun, wanted = nights.read_json(options.date, BEGUN), nights.read_json(options.date, PLAN).get("wanted", {})
        moved = [
            gateway.name
            for gateway in self._gateways
            if gateway.url in begun and gateway.sha256s() != begun[gateway.url] and wanted.get(gateway.url) not in gateway.sha256s()
        ]
        if before is None or moved:
            if moved:
                self._tell(
                    f"the quotas of {', '.join(moved)} were changed since this night was begun: it begins anew, from what is live now"
                )
            nights.forget(options.date)
            begun = {gateway.url: gateway.sha256s() for gateway in self._gateways}
            nights.write_json(options.date, BEGUN, {**begun, COMPUTED_WITH: options.describe_computation()})
            nights.write_snapshot(options.date, PREVIOUS, self._merge_live())
        elif options.again or begun.get(COMPUTED_WITH) != options.describe_computation():
            nights.forget(options.date)
            nights.write_json(options.date, BEGUN, {**begun, COMPUTED_WITH: options.describe_computation()})
        self._before = before if before is not None and not moved else self._merge_live()
        for gateway in self._gateways:  # nobody asks for it any more, and of thousands it is gigabytes
            gateway.live = replace(gateway.live, quotas=())

    def _merge_live(self) -> Snapshot:
        """The quotas in force at all gateways, or else those in shadow mode."""
        live = merge_snapshots([group[0].live for group in self._pools])
        tried = [each for each in (group[0].tried for group in self._pools) if each is not None]
        return live if live.quotas or len(tried) < len(self._pools) else merge_snapshots(tried)

    # ---- computing --------------------------------------------------------------------------------------------------

    def _compute_days(self) -> int:
        """Compute the missed days and the day itself; the first exit code that is not 0, but a missed day without enough input is left."""
        options, nights = self._options, self._nights
        first = (datetime.fromisoformat(options.date) - timedelta(days=options.remember_days)).strftime("%Y-%m-%d")
        missed = find_missed_days(list_log_days(self._log, options.log), nights.list_computed_days(), options.date, first)
        if missed:
            self._tell(f"{pluralise(len(missed), 'day')} of log not computed yet, oldest first: {', '.join(missed)}")
        for day in [*missed, options.date]:
            if day != options.date and not nights.read_applied(day):
                nights.write_json(day, BEGUN, nights.read_json(day, BEGUN))  # its quotas were never in force
            code = self._compute_day(day)
            if code == INSUFFICIENT and day != options.date:
                self._tell(f"{day} is left out; `sluice quotas compute --date {day}` says why, and takes it in once that is mended")
            elif code:
                return code
        return DONE

    def _compute_day(self, day: str) -> int:
        options, nights = self._options, self._nights
        previous = format_argument(nights.file(options.date, PREVIOUS)) if self._before.quotas else None
        output = format_argument(nights.file(day, QUOTAS))
        more = {name: value for name, value in options.compute.items() if value not in (None, (), "")}
        if options.allow_partial:
            more["allow_partial"] = True
        return self._compute(
            format_argument(options.log), day, format_argument(options.state), output, options.master, previous=previous, **more
        )

    def _missing_gateways(self) -> list[str]:
        """Gateways that ran all of the day, by their uptime, and of which the log has nothing."""
        from spark_jobs.days import Day

        known = self._nights.read_manifest(self._options.date).get("gateways")
        if not isinstance(known, dict):
            return []
        start = Day(self._options.date, self._options.zone).start
        return [each.name for each in self._gateways if each.name not in known and time.time() - each.uptime_s < start]

    # ---- judging and publishing ---------------------------------------------------------------------------------------

    def _publish(self, snapshot: Snapshot) -> Result:
        options, nights = self._options, self._nights
        found = plan(self._before, snapshot, options.rails)
        for held in found.held:
            self._tell(f"held: {describe_held(held)}")
        for sentence in found.lowered:
            self._tell(sentence)
        days, self._judged = self._judge(found.publish)
        self._tell(self._judged)
        lowered = compute_lowered_ppm(found.publish, days)
        promised = max(compute_promised_ppm(snapshot), lowered)
        if lowered:  # the report foresees tomorrow with it
            of: dict[str, JSON] = {"lowered_ppm": lowered, "lowered_topics": list_most_lowered(days)}
            found = replace(found, publish=replace(found.publish, night={**found.publish.night, **of}))
        faults = explain_backtest_stop(snapshot, options.max_would_refuse, days), explain_candidate_stop(days, found.publish, options)
        stops = [*found.tripped, *filter(None, (self._describe_newer(), *faults))]
        parts = split_by_pool(found.publish, self._pools, nights.read_manifest(options.date).get("gateways") or ())
        wanted = {
            gateway.url: sha256 for group, part in zip(self._pools, parts, strict=True) for sha256 in [part.sha256()] for gateway in group
        }
        written = {"guard_rails": stops, "promised_ppm": promised, "wanted": wanted, "judged": [day.to_json() for day in days]}
        nights.write_json(options.date, PLAN, {**found.to_json(), **written})
        if stops:
            return self._end(STOPPED, found, f"nothing was published: {'; '.join(stops)}", stops)
        above = None if options.return_margin is None else promised + round(options.return_margin * MILLION)
        publication = FleetPublication(
            ENFORCE, f"nightly {options.date}", above if above is not None and above < MILLION else None, self._tell
        )
        publication.mode, said = self._choose_mode(above)
        if options.dry_run:
            return self._end(DONE, found, f"dry run: nothing was published; it would be {said}")
        nights.write_snapshot(options.date, QUOTAS, found.publish)  # the published one: a backtest of the next day looks here
        if publication.mode == ENFORCE and options.shadow_nights and not any(gateway.record(ENFORCE) for gateway in self._gateways):
            nights.keep_trial([gateway.url for gateway in self._gateways], options.shadow_nights)  # also where it is taken back
        publication.publish(self._pools, parts)
        nights.write_json(options.date, APPLIED, self._make_record(publication, said))
        quotas = found.publish.quotas
        railed = sum(each.evidence.get("status") == "held" for each in quotas)  # by the computation, or by the publication's own rail
        changes = f"{pluralise(len(quotas), 'quota')} of {options.date}, {len(found.differences)} changed, {railed} held"
        return self._end(DONE, found, f"{changes}: {said} at {pluralise(len(self._gateways), 'gateway')}", published=said)

    def _describe_newer(self) -> str:
        """Why a night of the past is computed and not published, or ""."""
        newest = max(str((gateway.record(ENFORCE) or {}).get("date") or "") for gateway in self._gateways)
        if self._options.again or newest <= self._options.date:
            return ""
        return f"the quotas of {newest} are in force, and those of {self._options.date} are older; --again publishes them"

    def _judge(self, publish: Snapshot) -> tuple[list[JudgedDay], str]:
        """Judge tonight's quotas on the last days that the state knows; also in words. A state that cannot be read stops nothing here."""
        from spark_jobs.backtest.candidate import describe_judged_days, judge_days
        from spark_jobs.days import Day
        from spark_jobs.errors import InsufficientInputError
        from spark_jobs.state.state import DayStates

        options, spark = self._options, None
        if not options.state.is_local:
            from pyspark.sql import SparkSession

            spark = SparkSession.getActiveSession()
        try:
            days = judge_days(DayStates(options.state, self._state), publish, self._before, Day(options.date, options.zone), spark)
        except (InsufficientInputError, OSError) as error:
            return [], f"Tonight's quotas were not judged on past days: {error}"
        return days, describe_judged_days(days)

    def _choose_mode(self, above: int | None) -> tuple[str, str]:
        """Whether tonight's quotas are enforced or tried, and that in words."""
        options = self._options
        if options.shadow_nights <= 0 or any(gateway.record(ENFORCE) for gateway in self._gateways):
            return ENFORCE, "published"
        night = 1
        for gateway in self._gateways:
            record = gateway.record(SHADOW)
            if record is not None:
                night = max(night, int(record.get("nights") or 1) + (record.get("date") != options.date))
        passed = 0 if options.shadow_again else self._nights.count_passed_nights(gateway.url for gateway in self._gateways)
        if night <= options.shadow_nights and passed < options.shadow_nights:
            return SHADOW, f"tried in shadow mode, night {night} of {options.shadow_nights},"
        would = [gateway.status.get("would_refuse") or {} for gateway in self._gateways]
        offered, refused = (sum(int(each.get(name) or 0) for each in would) for name in ("offered", "refused"))
        if above is not None and offered >= MIN_OFFERED and refused * MILLION > above * offered:
            return SHADOW, f"tried in shadow mode for another night (they would have refused {refused / offered:.2%} since the last)"
        return ENFORCE, "published"

    def _make_record(self, publication: FleetPublication, said: str) -> dict[str, Any]:
        return {
            "date": self._options.date,
            "mode": publication.mode,
            "outcome": said,
            "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "return_above_ppm": publication.return_above_ppm,
            "options": self._options.describe(),
            "gateways": {gateway.url: {"name": gateway.name, "sha256": gateway.applied} for gateway in self._gateways},
        }

    def _describe_done(self, applied: dict[str, Any]) -> str:
        date = self._options.date
        mode = self._nights.read_applied(date).get("mode", ENFORCE)
        moved = [
            f"{gateway.name} ({gateway.url})"
            for gateway in self._gateways
            if (gateway.record(mode) or {}).get("sha256") != applied[gateway.url].get("sha256")
        ]
        if moved:
            where = ", ".join(moved)
            return f"the quotas of {date} were published before, and changed since at {where}; left as they are (--again publishes them)"
        return f"nothing to do: the quotas of {date} are {'live' if mode == ENFORCE else 'being tried'}"

    # ---- the end ------------------------------------------------------------------------------------------------------

    def _end(self, code: int, found: QuotaPlan, outcome: str, stops: Sequence[str] = (), published: str = "") -> Result:
        """Write the report; it must not end a night that is published. `stops`: the reasons why it is not; `published`: the gateways'
        answer as a sentence."""
        from spark_jobs.report import write_reports
        from spark_jobs.report.needs import join_names

        date, options = self._options.date, self._options
        gateways = [gateway.name for gateway in self._gateways] if published else []
        told = {"gateways": gateways, "command": list(options.command), "ratio": options.rails.ratio, "guard_rails": list(stops)}
        said = f"{published[:1].upper()}{published[1:]} at {join_names(gateways)}" if published else outcome
        files = write_reports(found.publish, self._before, {**found.to_json(), **told, "outcome": said, "judged": self._judged})
        for name, data in files.items():
            self._nights.write(date, name, data)
        return Result(code, outcome, self._nights.file(date, REPORT), files[REPORT])


def format_argument(place: Location) -> str:
    """A location as the computation takes it: a plain path where it is of this machine."""
    return place.path if place.is_local else str(place)


def compute_promised_ppm(snapshot: Snapshot) -> int:
    """Messages refused per million that the backtest promises: the target, or, out of sample over seven nights, more."""
    night = getattr(snapshot, "night", None)
    target = night.get("target_refused_ppm") if isinstance(night, dict) else None
    target = target if isinstance(target, int) else int(snapshot.parameters.get("target_refused_ppm") or 1000)  # type: ignore[arg-type]
    offered, refused, _ = sum_last_nights(snapshot.quotas)
    return max(target, round(refused / offered * MILLION)) if offered >= MIN_OFFERED else target


def explain_backtest_stop(snapshot: Snapshot, most: float, days: Sequence[JudgedDay]) -> str:
    """Why the quick backtest stops it, or "": the quotas in force over seven nights refused too much, out of sample and beside yesterday's
    maximum. Tonight's quotas pass where they would have refused no more of the judged `days`: they are the way out. Quotas that somebody
    has lowered by a capacity, a ceiling or a pin stop nothing."""
    if is_lowered(snapshot):
        return ""
    offered, refused, simple = sum_last_nights([quota for quota in snapshot.quotas if not is_pinned(quota)])
    if offered < MIN_OFFERED or refused <= most * offered or refused <= WORSE_THAN_SIMPLE * simple:
        return ""
    live = [day.live for day in days if day.live is not None]
    if days and len(live) == len(days) and sum(day.refused for day in days) <= sum(live):
        return ""
    way = describe_way_out(
        "at the report for the topics that were refused: --exclude leaves an incident out", "--max-would-refuse", refused / offered
    )
    return (
        f"the quick backtest: the quotas in force refused {refused / offered:.2%} of the messages of the last seven nights, more than "
        f"{most:.2%}, and yesterday's maximum {simple / offered:.2%}; tonight's are not known to refuse less {way}"
    )


def explain_candidate_stop(days: Sequence[JudgedDay], publish: Snapshot, options: Options) -> str:
    """Why tonight's quotas, judged on past days, are not published, or "": on each of the last days of the kind of the day to come they
    would have refused too much, and far more than the live ones. Quotas that somebody has lowered by a capacity or a ceiling stop
    nothing."""
    from spark_jobs.backtest.candidate import select_same_kind
    from spark_jobs.days import Day

    if is_lowered(publish):
        return ""
    known = select_same_kind([day for day in days if day.offered >= MIN_OFFERED], Day(options.date, options.zone).before(-1).date)
    if not known or not all(
        day.refused > options.max_would_refuse * day.offered and day.refused > WORSE_THAN_SIMPLE * (day.live or 0.0) for day in known
    ):
        return ""
    best = min(known, key=lambda day: day.share)
    return (
        f"the quick backtest: tonight's quotas would have refused {best.share:.2%} of the messages of {best.date}, and more "
        f"on all other days like the one to come ({len(known)} of the last seven); more than {options.max_would_refuse:.2%}"
        + ("" if best.live is None else f", and those in force {best.live / best.offered:.2%}")
        + f" {describe_way_out('at the report for the quotas that fall most', '--max-would-refuse', best.share)}"
    )


def compute_lowered_ppm(publish: Snapshot, days: Sequence[JudgedDay]) -> int:
    """Messages per million that tonight's quotas would have refused of the judged days, where a person has lowered them. That much is
    promised, or the gateway would take back a wanted change. 0 where nobody has lowered them."""
    if not days or not (is_lowered(publish) or any(map(is_pinned, publish.quotas))):
        return 0
    return round(sum(day.with_pins for day in days) / len(days) * MILLION)


def list_most_lowered(days: Sequence[JudgedDay]) -> list[JSON]:
    """The topics of which tonight's quotas would have refused most of the judged days: messages a day, and the day with the most."""
    each: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for day in days:
        for key, refused in day.topics.items():
            each.setdefault(key, []).append((refused, day.date))
    most = sorted(each.items(), key=lambda item: (-sum(refused for refused, _ in item[1]), item[0]))[:MOST_LOWERED]
    return [
        {"protocol": key[0], "topic": key[1], "refused": round(sum(refused for refused, _ in lost) / len(days)), "worst": max(lost)[1]}
        for key, lost in most
    ]


def is_lowered(snapshot: Snapshot) -> bool:
    """Whether a capacity or a ceiling lowers the quotas of messages, or might."""
    return any(snapshot.parameters.get(name) for name in ("capacity_messages", "ceiling_messages"))


def sum_last_nights(quotas: Iterable[Quota]) -> tuple[float, float, float]:
    """Over these topics and the last seven nights, out of sample: messages offered, refused, and refused by yesterday's maximum."""
    offered = refused = simple = 0.0
    for quota in quotas:
        nights = quota.evidence.get("nights7")
        if isinstance(nights, dict):
            offered += as_number(nights.get("offered"))
            refused += as_number(nights.get("refused"))
            of_simple = nights.get("yesterday_max")
            simple += as_number(of_simple.get("refused")) if isinstance(of_simple, dict) else 0.0
    return offered, refused, simple


def as_night_code(error: Failure) -> Failure:
    """The error with the exit code of a night: any fault of a gateway is 4."""
    if error.code in {UNREACHABLE, NOT_AUTHORISED, CONFLICT}:
        error.code = GATEWAYS
    return error
