"""The context of a handler: the request, the gateway and the store; and the one way to change the state, with its dry run."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from admin.http.bodies import ChangeContext, pointer
from admin.http.problems import Fault, ProblemError, invalid
from admin.http.routing import Answer
from admin.http.slices import in_slices, in_steps, rest_after, yield_to_loop
from admin.store.changes import Author, Plan, WriteFailedError
from admin.store.level_targets import is_level_target, level_key_of, words_of
from admin.store.state import QUOTAS, StoredOverride, key_of
from admin.views.hindsight import SECONDS, WouldHaveRefused, would_have_refused
from admin.views.level_views import holding
from admin.views.limit_views import levels_of, not_enforced, remarks_on_limits
from admin.views.rule_remarks import remarks_on_rule
from admin.views.views import Preview, TopicChange
from common.records import dataclass
from limiter.protocols import protocol_of_level
from limiter.rules.errors import RuleError
from limiter.rules.rule_set import SHADOW

if TYPE_CHECKING:
    from msgspec import UnsetType

    from admin.authentication.auth import ValidTokens
    from admin.authentication.authentication import Authentication
    from admin.authentication.token_store import TokenStore
    from admin.http.routing import Request, Route
    from admin.log_level import LiveLogLevel
    from admin.ports import OperatedGateway, Sample
    from admin.quota_watch import QuotaWatch
    from admin.store.journal import Change
    from admin.store.store import EditNow, Store
    from admin.stream_hub import StreamHub
    from admin.views.marks import Marks
    from admin.views.topic_limits import LimitsByTopic
    from limiter.judge import Judge
    from limiter.limit_state import LimitState
    from limiter.quota_snapshot import Quota
    from limiter.rules.level_keys import LevelKey
    from limiter.rules.rule_set import RuleSet
    from limiter.topics import TopicName

MAX_TOPICS_COMPARED: Final = 2000  # topics in use that a dry run compares; some 60 ms with the rests between them (guess)
COMPARED_PER_SLICE: Final = 10  # of them; some 0.2 ms (guess)
MAX_TOPICS_SHOWN: Final = 100  # topics in the answer of a dry run (guess)
SHOWN_PER_SLICE: Final = 2  # of them; some 0.2 ms (guess)

MAX_RULES_NAMED: Final = 5  # rules in one sentence on quotas; those of the most quotas (guess)
PER_STEP: Final = 100  # quotas looked at between two looks at the clock; some 0.05 ms
UNENFORCED: Final = "are not enforced: their rules are not ({}), and a quota keeps its rule's mode; mode: enforce of the rule enforces them"
HELD_DOWN: Final = (
    "are pinned and do not hold: rules hold their topics lower ({}), as ceiling: true, 0/s and a rule that names the topic do; raise the "
    "rule, or lower the pin"
)

Shape = tuple[Any, ...]


def way_out(error: WriteFailedError) -> str:
    if error.way_out:
        return error.way_out
    if error.read_only:
        return "make it writable, start the gateway again"
    return "free some space" if error.full else "see that it can be written"


@dataclass(frozen=True, slots=True)
class Context:
    """One request, and what its handler may use."""

    request: Request
    gateway: OperatedGateway
    store: Store
    tokens: ValidTokens
    tokens_made: TokenStore
    wall_clock: Callable[[], float]
    quota_watch: QuotaWatch
    own_metrics: Callable[[], dict[str, list[Sample]]]
    hub: StreamHub
    log_level: LiveLogLevel
    still_allowed: Callable[[], bool]  # whether the same request would be answered now: its token may have been revoked
    routes: list[Route]
    authentication: Authentication
    marks: Marks
    topic_limits: LimitsByTopic
    secure: bool  # whether the API is served over TLS

    @property
    def author(self) -> Author:
        actor = self.request.actor
        return Author(actor.name, actor.role.word, actor.address, self.request.id)

    @property
    def reason(self) -> str:
        return self.request.query.get("reason", "")

    def states_in_slices(self) -> AsyncGenerator[list[LimitState], None]:
        """Every limit in use, with a rest after each slice."""
        return limits_in_slices(self.gateway.judge, self.request.now)

    def seconds_at(self, moment: int) -> float:
        """The time of day (seconds since 1970) at a moment of the monotonic clock (ns)."""
        return self.wall_clock() - (self.request.now - moment) / 1e9

    @property
    def change_context(self) -> ChangeContext:
        return ChangeContext(self.request.actor.name, self.wall_clock(), self.reason)

    async def answer_change(
        self, edit: EditNow, answer: Callable[[], Awaitable[Answer]], reason: str | UnsetType | None = "", *, restoring: bool = False
    ) -> Answer:
        """Make the change or preview it (`change`). `answer`: what holds then; `reason`: the body's, else it is the query's."""
        done = await self.change(edit, reason if isinstance(reason, str) else "", restoring=restoring)
        await yield_to_loop()  # before the answer, which may be as much work as the change
        return Answer(done) if isinstance(done, Preview) else await answer()

    async def change(self, edit: EditNow, reason: str = "", *, restoring: bool = False) -> Plan | Preview:
        """Make the change, or with `?dry_run=1` preview it; raises ProblemError."""
        action = f"{self.request.head.method} {self.request.head.path}"
        try:
            if self.request.flag("dry_run"):
                edits, published = edit()
                return await self._preview(self.store.plan(edits, published, restoring=restoring))
            done = await self.store.change(edit, self.author, action, reason or self.reason, restoring=restoring)
            await self.gateway.in_force()
            return done
        except RuleError as error:
            raise invalid("the limiter refuses this", [Fault(pointer(error.field), error.message)]) from error
        except WriteFailedError as error:
            raise ProblemError(
                507 if error.full or error.read_only else 500,
                "not-stored",
                f"the state directory could not be written ({error}); nothing was changed, and traffic goes on under the limits in "
                f"force; {way_out(error)} and send the change again",
            ) from error

    async def _names_in_use(self, most: int) -> list[TopicName]:
        """The names of the limits in use that have one, among the first `most`."""
        found: list[TopicName] = []
        looked_at = 0
        async with aclosing(self.states_in_slices()) as slices:
            async for some in slices:
                found += [state.name for state in some[: most - looked_at] if state.name is not None]
                looked_at += len(some)
                if looked_at >= most:
                    break
        return found

    async def _preview(self, plan: Plan) -> Preview:
        before, after = self.store.rules(), plan.rules
        names = dict.fromkeys(await self._names_in_use(MAX_TOPICS_COMPARED))
        keys = []
        for change in plan.changes:
            if is_level_target(change.target):
                keys.append(level_key_of(change.target))
            elif change.target.startswith("limits/"):
                names[key_of(change.target)] = None
        differs = await in_slices(lambda name: shape(before, name) != shape(after, name), list(names), COMPARED_PER_SLICE)
        affected = [name for name, changes in zip(names, differs, strict=True) if changes]

        def topic_change(name: TopicName) -> TopicChange:
            return TopicChange(name.protocol, name.text(), levels_of(before.effective(name)), levels_of(after.effective(name)))

        def level_change(key: LevelKey) -> TopicChange:
            now, then = (levels_of(holding(rules, key), key.operation) for rules in (before, after))
            return TopicChange(key.protocol or protocol_of_level(key.per) or "", words_of(key), now, then)

        topics = await in_slices(topic_change, affected[:MAX_TOPICS_SHOWN], SHOWN_PER_SLICE)
        topics += await in_slices(level_change, keys[:MAX_TOPICS_SHOWN], SHOWN_PER_SLICE)
        return Preview(
            plan.state.revision, plan.changes, len(affected), topics, would_have_refused=self._hindsight(plan),
            remarks=await remarks_of(before, after, plan.changes[:MAX_TOPICS_SHOWN]),
        )  # fmt: skip

    def _hindsight(self, plan: Plan) -> WouldHaveRefused | None:
        """What the new limit of a topic would have refused; None where it is off, another thing changes, or several."""
        targets = [change.target for change in plan.changes]
        if len(targets) != 1 or is_level_target(targets[0]) or not targets[0].startswith("limits/"):
            return None
        name = key_of(targets[0])
        place = (name.protocol, name.text(), "produce")
        limit = next((each.rule.limit for each in plan.rules.effective(name) if each.per == "topic" and each.rule.mode != "off"), None)
        return None if limit is None else would_have_refused(self.gateway.received_lately(place, SECONDS), limit)


async def remarks_of(before: RuleSet, rules: RuleSet, changes: Iterable[Change]) -> list[str]:
    """Sentences on those limits of `changes` that `rules` do not enforce, or that stand for others than one would think."""
    found: list[str] = []
    for change in changes:
        if change.after is None:
            continue
        target = change.target
        if target == QUOTAS:
            found += await remarks_on_quotas(rules)
        elif is_level_target(target):
            found += remarks_on_limits(msgspec.convert(change.after, StoredOverride), holding(rules, level_key_of(target)))
        elif target.startswith("limits/"):
            found += remarks_on_limits(msgspec.convert(change.after, StoredOverride), rules.effective(key_of(target)))
        else:
            rule = rules.rule(target.partition("/")[2])
            found += [] if rule is None else [*not_enforced(rule, f"rule {rule.name}"), *remarks_on_rule(before, rules, rule)]
    return found


async def remarks_on_quotas(rules: RuleSet) -> list[str]:
    """Sentences on published quotas that are only counted, because the rules that they change are, and on pinned ones that a rule holds
    down; none where all are enforced and hold."""
    topics = [rule for rule in rules.rules if rule.per == "topic"]
    named = list(rules.quotas) if any(rule.mode != "enforce" for rule in topics) else []
    unenforced = await in_slices(partial(_name_unenforced, rules), named, COMPARED_PER_SLICE)
    pinned = await in_steps(_list_pinned(rules)) if topics else []
    lower = await in_slices(partial(_name_above_pin, rules), pinned, COMPARED_PER_SLICE)
    said = []
    for names, sentence in ((unenforced, UNENFORCED), (lower, HELD_DOWN)):
        if found := Counter(filter(None, names)):
            by_rule = ", ".join(f"{name}: {count}" for name, count in found.most_common(MAX_RULES_NAMED))
            said.append(f"{found.total()} of {len(rules.quotas)} quotas {sentence.format(by_rule)}")
    return said


def _name_unenforced(rules: RuleSet, name: TopicName) -> str | None:
    levels = (each for each in rules.effective(name) if each.per == "topic" and each.origin.startswith("quota") and each.origin != SHADOW)
    return next((each.rule.name for each in levels if each.rule.mode != "enforce"), None)


def _pins(quota: Quota) -> list[tuple[str, float]]:
    """The dimensions of a quota that a person has pinned, with their rates."""
    of_bytes = quota.evidence.get("bytes")
    told = (("messages", quota.messages, quota.evidence), ("bytes", quota.bytes, of_bytes if isinstance(of_bytes, dict) else {}))
    return [(dimension, pair[0]) for dimension, pair, evidence in told if pair is not None and evidence.get("status") == "pinned"]


def _list_pinned(rules: RuleSet) -> Generator[None, None, list[TopicName]]:
    found = []
    for at, (name, quota) in enumerate(rules.quotas.items()):
        if _pins(quota):
            found.append(name)
        if not at % PER_STEP:
            yield
    return found


def _name_above_pin(rules: RuleSet, name: TopicName) -> str | None:
    """The rule that holds this topic below its pin; None where the pin holds, or a live change holds instead of it."""
    for dimension, pinned in _pins(rules.quotas[name]):
        for each in rules.effective(name):
            rate = getattr(each.limit, dimension)
            if each.per == "topic" and each.origin not in {SHADOW, "override"} and rate is not None and rate.per_second < 0.999 * pinned:
                return each.roofs[0].name if each.roofs else each.rule.name
    return None


async def limits_in_slices(judge: Judge, now: int) -> AsyncGenerator[list[LimitState], None]:
    """Every limit in use at `now` (monotonic ns), with a rest after each slice."""
    started = trio.current_time()
    for some in judge.states_in_slices(now):
        yield some
        await rest_after(started)
        started = trio.current_time()


def shape(rules: RuleSet, name: TopicName) -> list[Shape]:
    """A topic's limits, their end and reason, to be compared; without author and time, which differ at each change."""
    return [
        (
            e.per, e.origin, e.rule.limit, e.rule.action, e.rule.reply, e.rule.mode, e.rule.breaker_ns(), e.rule.max_delay_ns,
            e.rule.fallback, e.rule.candidate, e.expires_at, e.reason,
        )
        for e in rules.effective(name)
    ]  # fmt: skip
