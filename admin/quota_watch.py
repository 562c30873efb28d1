"""The quota watch: what the published quotas have refused since they were published, and their return where that is too much.

It reads the topics' counters that the gateway keeps anyway, some times a minute, and adds up by how much they have grown since the look
before. So it costs the traffic nothing, and a topic that the gateway forgets while it is idle keeps what was added up. A restart begins to
count anew.

Refused is what was over the limit: refused, dropped or delayed messages of topics that have a quota, by whatever rule. Of a snapshot in
shadow mode it is what passed and would have been refused.

**Return.** A snapshot is published with the most that it may refuse (`return_above_ppm`: what its backtest has promised, and a margin).
Where more is refused, of MIN_OFFERED messages and MIN_AGE_S after publication at least, the quotas before are put back, with the reason in
the history. What was put back stays: its own bound no longer counts, or a flood would lead through all earlier nights.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio
from msgspec.structs import replace as with_fields

from admin.http.problems import ProblemError
from admin.store.changes import Author, WriteFailedError
from admin.store.state import QUOTAS, SHADOW, PublishedQuotas, StateError, format_time, parse_time
from admin.views.views import Realised, RealisedTopic
from common import log

if TYPE_CHECKING:
    from admin.ports import OperatedGateway, Sample
    from admin.store.snapshots import Publication
    from admin.store.store import Store
    from common.views.topics import TopicView
    from limiter.quota_snapshot import Quota
    from limiter.topics import TopicName

LOOK_S: Final = 15.0  # seconds; between two looks; 10,000 topics take 40 ms of it, in slices
MIN_AGE_S: Final = 600.0  # seconds; after a publication, before it may be taken back; a guess: several bursts of ten seconds
MIN_OFFERED: Final = 1000  # messages; of fewer a share says little (guess)
WORST_SHOWN: Final = 10  # topics; what a person looks at
MILLION: Final = 1_000_000

Counts = dict[tuple[str, str], tuple[int, int]]  # (protocol, topic) -> messages offered, over the limit


@dataclass
class Trial:
    """One publication, what its topics' counters were when it began, and what has come since."""

    reference: PublishedQuotas
    topics: frozenset[tuple[str, str]]
    begun: float  # seconds since 1970
    begun_steady: float  # seconds of a clock that nobody sets
    before: Counts  # at the last look; in the beginning, when the quotas were published
    grown: Counts = field(default_factory=dict)  # since then
    offered: int = 0
    refused: int = 0
    worst: list[RealisedTopic] = field(default_factory=list)

    def count(self, counts: Counts) -> None:
        """Add what has come since the last look. A counter that is smaller now was forgotten, and began at 0 again."""
        for topic in self.topics & counts.keys():
            (offered, refused), (offered0, refused0) = counts[topic], self.before.get(topic, (0, 0))
            if offered < offered0:
                offered0 = refused0 = 0
            offered1, refused1 = self.grown.get(topic, (0, 0))
            self.grown[topic] = (offered1 + offered - offered0, refused1 + max(0, refused - refused0))
        self.before = counts
        self.offered = self.refused = 0
        found = []
        for topic, (offered, over) in self.grown.items():
            refused = min(over, offered)  # a message may be delayed first and refused then
            self.offered += offered
            self.refused += refused
            if refused:
                found.append(RealisedTopic(*topic, offered, refused))
        self.worst = sorted(found, key=lambda each: (-each.refused, each.protocol, each.topic))[:WORST_SHOWN]

    def ratio(self) -> float:
        return self.refused / self.offered if self.offered else 0.0

    def __repr__(self) -> str:
        return f"<Trial {self.reference.sha256[:8]} refused={self.refused} of {self.offered}>"


class QuotaWatch:
    """Counts for the quotas in force and for those tried. On trio's thread."""

    def __init__(
        self, gateway: OperatedGateway, store: Store, wall_clock: Callable[[], float], steady_clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gateway = gateway
        self._store = store
        self._wall_clock = wall_clock
        self._steady_clock = steady_clock
        self._trials: dict[str, Trial] = {}
        self._started = False  # what the counters say at the first look was counted under what is in force then

    async def run(self) -> None:
        """Look, and return what refuses too much, until cancelled."""
        while True:
            try:
                await self.look()
                await self.return_if_too_much()
            except Exception as error:  # let it crash: this look only
                log.failure("quota_watch_failed", error)
            await trio.sleep(LOOK_S)

    async def look(self) -> None:
        """Count. A publication that is new since the last look begins now."""
        state = self._store.state
        if state.quotas is None and state.shadow is None:
            self._trials.clear()
            self._started = True
            return
        await self._gateway.gather(["topics"])
        items = [item for item in await self._gateway.topics() if item.operation == "produce"]
        for target, over, reference, quotas in (
            (QUOTAS, ("refused", "dropped", "delayed"), state.quotas, self._store.quotas),
            (SHADOW, ("shadow_refused",), state.shadow, self._store.shadow_quotas),
        ):
            if reference is None:
                self._trials.pop(target, None)
                continue
            counts = {(item.protocol, item.topic): counts_of(item, over) for item in items}
            trial = self._trials.get(target)
            if trial is None or trial.reference != reference:
                before = counts if self._started else {}
                self._trials[target] = trial = Trial(reference, topics_of(quotas), self._wall_clock(), self._steady_clock(), before)
            trial.count(counts)
        self._started = True

    async def return_if_too_much(self) -> None:
        """Put the quotas before back where those in force refuse more than they were published with."""
        trial = self._trials.get(QUOTAS)
        now = self._store.state.quotas
        if trial is None or now is None or trial.reference != now or now.return_above_ppm is None:
            return
        age = self._steady_clock() - trial.begun_steady
        if age < MIN_AGE_S or trial.offered < MIN_OFFERED:  # after a restart the counters begin anew
            return
        if trial.ratio() * MILLION <= now.return_above_ppm:
            return
        reason = (
            f"returned: {trial.refused} of {trial.offered} messages ({trial.ratio():.2%}) were refused under the quotas of "
            f"{now.date or now.computed_at}, more than the {now.return_above_ppm / MILLION:.2%} they were published with"
        )
        known, before, published = await way_back(self._store, format_time(self._wall_clock()))
        if not known or (before is not None and published is None):
            log.event(logging.ERROR, "quotas_not_returned", reason=reason, err="the quotas before are not kept any more")
            return

        def edit() -> tuple[list[tuple[str, PublishedQuotas | None]], Publication | None]:
            if self._store.state.quotas != now:
                raise ProblemError(412, "precondition-failed", "the quotas were changed meanwhile")
            return [(QUOTAS, before)], published

        try:
            await self._store.change(edit, Author("sluice"), "return of quotas", reason, restoring=True)
        except (ProblemError, WriteFailedError) as error:
            log.event(logging.ERROR, "quotas_not_returned", reason=reason, err=str(error))
            return
        await self._gateway.in_force()
        log.event(
            logging.WARNING, "quotas_returned", reason=reason, date=before.date if before else "", sha256=before.sha256 if before else ""
        )

    def realised(self, target: str) -> Realised | None:
        """What was offered and refused of a publication, as of the last look."""
        trial = self._trials.get(target)
        if trial is None:
            return None
        return Realised(trial.offered, trial.refused, round(trial.ratio(), 9), format_time(trial.begun), list(trial.worst))

    def age_s(self) -> float | None:
        """Seconds since the quotas in force were computed; None without quotas."""
        now = self._store.state.quotas
        if now is None:
            return None
        try:
            return max(0.0, round(self._wall_clock() - parse_time(now.computed_at), 3))
        except ValueError:  # a snapshot written by hand
            return None

    def samples(self) -> dict[str, list[Sample]]:
        """The metrics, as of the last look."""
        state = self._store.state
        found: dict[str, list[Sample]] = {}
        age = self.age_s()
        if age is not None:
            found["sluice_quota_age_seconds"] = [((), age)]
        published = [parse_time(each.at) for each in (state.quotas, state.shadow) if each is not None and each.at]
        if published:
            found["sluice_quota_last_success_timestamp_seconds"] = [((), max(published))]
        for name, target in (("sluice_quota_refused_ratio", QUOTAS), ("sluice_quota_shadow_refused_ratio", SHADOW)):
            trial = self._trials.get(target)
            if trial is not None:
                found[name] = [((), round(trial.ratio(), 9))]
        if state.quotas is not None and state.quotas.target_refused_ppm is not None:
            found["sluice_quota_target_ratio"] = [((), state.quotas.target_refused_ppm / MILLION)]
        if state.quotas is not None and state.quotas.return_above_ppm is not None:
            found["sluice_quota_return_ratio"] = [((), state.quotas.return_above_ppm / MILLION)]
        return found

    def __repr__(self) -> str:
        return f"<QuotaWatch {self._trials}>"


async def way_back(store: Store, now: str) -> tuple[bool, PublishedQuotas | None, Publication | None]:
    """Whether the quotas before those in force are known; their record as it is to be put back; and their file where it is kept."""
    known, before = await store.quotas_before()
    if before is None:
        return known, None, None
    try:
        published = await store.snapshot(before.sha256)
    except StateError:
        published = None
    return known, with_fields(before, put_back=now, return_above_ppm=None), published


def counts_of(item: TopicView, over: tuple[str, ...]) -> tuple[int, int]:
    """Messages offered to a topic, and the sum of its counters `over`."""
    return item.received, sum(getattr(item, name) for name in over)


def topics_of(quotas: Mapping[TopicName, Quota]) -> frozenset[tuple[str, str]]:
    return frozenset((name.protocol, name.text()) for name in quotas)
