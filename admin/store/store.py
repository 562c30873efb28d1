"""The store: live changes, made durable first and put in force after.

A change goes through these steps, one change at a time, the blocking ones on a thread::

    edit ──► check ──► journal line, fsync ──► state.json: draft, fsync, rename, fsync folder ──► in force ──► acknowledged
             (rules      "applied",                              ▲
              are built)  revision n                             the change happens here, at the rename, and nowhere else

* Killed before the rename, the state is the old one, and the journal ends with a line for a change that never was. The next start finds
  that line's sequence above the state's and takes it back with a line of outcome `void`.
* A step that fails (disk full, read-only, I/O error) undoes what came before it. The change is then neither acknowledged nor in force,
  `write_failures` counts it, and traffic goes on under the old rules.
* `state.json` carries a checksum and the one before it is kept as `state.json.previous`. When the newer cannot be read, the older one is
  taken and the journal's changes since are applied again, so nothing is lost; the damaged file is kept aside, with a line in `warnings`.
  When neither can be read, the gateway does not start: it would run without the limits that operators rely on. The error names the way out.

Quota snapshots are files of their own, written before the change that names them; the last few are kept for rollback. A revision
older than the journal (two files of 8 MiB) cannot be restored.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from admin.http.side_thread import run_in_thread
from admin.store.audit_chain import AuditReport, verify_audit
from admin.store.changes import Author, Plan, StoreError, WriteFailedError
from admin.store.clock_steps import ClockSteps
from admin.store.journal import FILE as HISTORY
from admin.store.journal import ROTATE_AT, Entry, Journal, latest
from admin.store.live_rules import NoTexts, RuleTexts
from admin.store.rules_in_force import MAX_TARGETS_SAID, RulesInForce
from admin.store.snapshots import Publication
from admin.store.state import (
    QUOTAS,
    SHADOW,
    Edit,
    PublishedQuotas,
    State,
    StateError,
    Stored,
    StoredOverride,
    StoredRule,
    from_json,
    has_expired,
)
from admin.store.state_directory import HANDED_OVER, LENT, STATE, SYSTEM, StateDirectory, new_entry
from common import log
from common.durable_files import FileSystem
from limiter.rules.rule_set import RuleError, RuleSet

if TYPE_CHECKING:
    from limiter.quota_snapshot import Quota
    from limiter.rules.hourly_raise import HourlyRaise
    from limiter.rules.rule_set import Rule
    from limiter.topics import TopicName

__all__ = ["Author", "Plan", "Store", "StoreError", "WriteFailedError"]

DOUBT_S: Final = 5.0  # between two looks at ends that are not believed, of which there may be 20,000; a guess

EditNow: TypeAlias = Callable[[], tuple[Sequence[Edit], Publication | None]]


class _NothingExpiredError(Exception):
    """Ends a change that has become pointless."""


class Store:
    """The state directory and the rules in force, which change together and one change at a time."""

    def __init__(
        self,
        directory: StateDirectory,
        rules: tuple[Rule, ...],
        rule_texts: RuleTexts,
        wall_clock: Callable[[], float],
        steady: Callable[[], float] | None,
    ) -> None:
        """`open` is the usual way. Raises StoreError, or RuleError for `rules`; then the directory is closed."""
        self._wall_clock = wall_clock
        self._directory = directory
        self._in_force = _first_rules(directory, rules, rule_texts, wall_clock)
        self._turn = trio.Lock()
        self._searching = trio.Lock()
        self._first_end: tuple[State | None, float] = (None, math.inf)  # of which state, and its `first_end`
        self.enforce: Callable[[RuleSet], None] | None = None  # called with every new set of rules
        self.write_failures = 0
        self.quotas_raised = 0  # by `raise_quotas`
        self._steps = ClockSteps(wall_clock, steady)
        self._doubted: State | None = None  # of which state nothing that has ended was believed
        self._doubt_until = 0.0  # monotonic

    @classmethod
    def open(
        cls,
        folder: Path | str,
        rules: tuple[Rule, ...],
        wall_clock: Callable[[], float] = time.time,
        files: FileSystem | None = None,
        rotate_at: int = ROTATE_AT,
        rule_texts: RuleTexts | None = None,
        steady: Callable[[], float] | None = None,
        *,
        observing: bool = False,
    ) -> Store:
        """Make the folder (mode 0700) if need be and read its files; raises StoreError, OSError, or RuleError for `rules`.

        `steady` are seconds that no setting of the clock changes; without it the wall clock is believed as it is. `observing`, another
        process may have the folder; nothing can be stored until `take`.
        """
        directory = StateDirectory.open(Path(folder), wall_clock, files or FileSystem(), rotate_at, observing=observing)
        return cls(directory, rules, rule_texts or NoTexts(), wall_clock, steady)

    def close(self) -> None:
        """Let another process have the folder. Nothing is buffered, so nothing is written."""
        self._directory.close()

    async def hand_over(self) -> None:
        """Let another process have the folder when the change that is under way is stored; from now on all are refused.

        `give` says that this is for good, and `take` has the folder back.
        """
        async with self._turn:
            if not self._directory.shut:  # which nobody can have, for a reason that stays
                self._directory.read_only = LENT
            self.close()

    def give(self) -> None:
        """The other process serves."""
        self._directory.read_only = HANDED_OVER

    async def take_again(self) -> None:
        """`take` between two changes: the plan of one that waits is made on what the other process has left.

        Messages go on meanwhile: 19,000 changes take 0.1 s to read.
        """
        async with self._turn:
            if not self._directory.shut:
                self._become(*await run_in_thread(self._read_anew))

    def take(self, files: FileSystem | None = None) -> None:
        """Have the folder, which was only observed or was handed over, and read it anew: it may have changed.

        Raises as `open`; then nothing has changed here.
        """
        if not self._directory.shut:
            self._become(*self._read_anew(files))

    def _read_anew(self, files: FileSystem | None = None) -> tuple[StateDirectory, RulesInForce]:
        """The folder that this process has now, and the rules as it has them. On any thread: this store stays as it is."""
        now = self._in_force
        directory = self._directory.take(files)
        return directory, _first_rules(directory, now.file_rules, now.rule_texts, self._wall_clock, now.hourly)

    def _become(self, directory: StateDirectory, in_force: RulesInForce) -> None:
        before, self._directory, self._in_force = self._in_force, directory, in_force
        if in_force.file_rules is not before.file_rules or in_force.hourly is not before.hourly:  # replaced while it was read
            in_force.file_rules, in_force.hourly = before.file_rules, before.hourly
            in_force.rules = in_force.build(self.state)

    @property
    def folder(self) -> Path:
        return self._directory.path

    @property
    def warnings(self) -> list[str]:
        return self._directory.warnings

    @property
    def read_only(self) -> str:
        """Why nothing can be stored until the next start; "" where it can."""
        return self._directory.read_only

    def lent(self) -> str:
        """Why another process has the folder; "" while this one has it."""
        return self._directory.lent

    @property
    def state(self) -> State:
        return self._directory.state

    @property
    def revision(self) -> int:
        return self.state.revision

    # ---- the rules -----------------------------------------------------------------------------------------------------

    @property
    def rule_texts(self) -> RuleTexts:
        return self._in_force.rule_texts

    @property
    def file_rules(self) -> tuple[Rule, ...]:
        """As they stand in the configuration, without live changes."""
        return self._in_force.file_rules

    @property
    def next_expiry(self) -> float | None:
        """When (seconds since 1970) the first live change in the current rules expires; see `lapse`."""
        return self._in_force.next_expiry(self.state)

    @property
    def quotas(self) -> Mapping[TopicName, Quota]:
        """The published quotas in force."""
        return self._in_force.quotas

    @property
    def shadow_quotas(self) -> Mapping[TopicName, Quota]:
        """Those that are only tried."""
        return self._in_force.shadow_quotas

    def rules(self) -> RuleSet:
        """All rules as they hold now, which are those in force. The same object until something changes or expires."""
        self.lapse()
        return self._in_force.rules

    def replace_file_rules(self, rules: tuple[Rule, ...], compiled: RuleSet | None = None) -> RuleSet:
        """Take the configuration's rules anew; live changes stay (see `unfit`). Raises RuleError, and then nothing has changed.

        With `compiled`, a set made `with_live_rules`, this takes little time.
        """
        in_force = self._in_force
        before, in_force.file_rules = in_force.file_rules, rules
        try:
            in_force.rules = in_force.build(self.state, like=compiled)
        except RuleError:
            in_force.file_rules = before
            raise
        return in_force.rules

    def with_live_rules(self, file_rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """`file_rules` and the rules added live, in the order in which they would be tried; for `replace_file_rules`. On any thread."""
        return self._in_force.with_live_rules(self.state, file_rules)

    def live_rules_over(self, file_rules: tuple[Rule, ...]) -> list[str]:
        """Names that both a rule of the file and one added live have: the live one holds."""
        return [rule.name for rule in file_rules if rule.name in self.state.live_rules]

    def all_rules(self) -> tuple[Rule, ...]:
        """The rules of the file and those added live, in the order in which they are tried. The same object until one of them changes."""
        return self._in_force.all_rules(self.state)

    def override(self, target: str) -> StoredOverride | None:
        """The live change of a limit or of a rule that has not ended."""
        found = self.state.holding(target, self._wall_clock())
        assert found is None or isinstance(found, StoredOverride)
        return found

    def live_rule(self, name: str) -> StoredRule | None:
        """The rule of that name that was added live and has not ended."""
        found = self.state.live_rules.get(name)
        return None if has_expired(found, self._wall_clock()) else found

    def unfit(self) -> dict[str, str]:
        """Live changes of rules that have not ended but do not hold, by the rule's name, and why: the rule is gone, or has changed."""
        return self._in_force.unfit(self.state)

    def raise_quotas(self, hourly: HourlyRaise | None, raised: int) -> None:
        """Let quotas hold as `hourly` raises them until this is called again; `raised` is how many that are.

        Not a change of the state: it is not durable, has no revision, and quotas published meanwhile are raised by it too.
        """
        before, self.quotas_raised = self.quotas_raised, raised
        if hourly is self._in_force.hourly:
            return
        self._in_force.hourly = hourly
        if before or raised:
            self._put_in_force(self._in_force.build(self.state))

    def _put_in_force(self, rules: RuleSet) -> None:
        self._in_force.rules = rules
        if self.enforce is not None:
            self.enforce(rules)

    def plan(self, edits: Sequence[Edit], published: Publication | None = None, *, restoring: bool = False) -> Plan:
        """The plan of `edits`, which changes nothing (`RulesInForce.plan`). Raises RuleError where the limiter would refuse them."""
        return self._in_force.plan(self.state, edits, published, restoring=restoring)

    # ---- changing ------------------------------------------------------------------------------------------------------

    async def change(self, edit: EditNow, author: Author, action: str, reason: str = "", *, restoring: bool = False) -> Plan:
        """Make a change: when this returns it is durable and in force. Changes take turns; `edit` is called when its turn has come.

        An exception of `edit` ends the change (a precondition that no longer holds). Raises RuleError, WriteFailedError.
        Once begun a change is not cancelled.
        """
        async with self._turn:
            edits, published = edit()
            await trio.lowlevel.cancel_shielded_checkpoint()  # messages go first, here and below: each part takes a few 0.1 ms
            before = self._in_force.rules
            plan = self.plan(edits, published, restoring=restoring)
            await trio.lowlevel.cancel_shielded_checkpoint()
            entry = new_entry(self._wall_clock, author, action, "applied", reason, revision=plan.state.revision, changes=plan.changes)
            try:
                self._directory.state = await run_in_thread(self._directory.commit, plan.state, entry, published)
            except OSError as error:
                self._count_failure()
                raise WriteFailedError(error, read_only=bool(self.read_only), way_out=self._directory.way_out) from error
            now = self._in_force
            now.quotas, now.shadow_quotas = plan.rules.quotas, plan.rules.shadow_quotas
            # The plan's, unless the file's rules were replaced, quotas raised, or something expired meanwhile.
            self._put_in_force(plan.rules if now.rules is before else now.build(self.state, like=plan.rules))
            done = Plan(self.state, plan.changes, now.rules)
            await trio.lowlevel.cancel_shielded_checkpoint()
            targets = [change.target for change in plan.changes[:MAX_TARGETS_SAID]]
            log.event(
                logging.INFO, "changed", by=author.name, role=author.role, action=action, revision=self.state.revision, reason=reason,
                targets=targets, changes=len(plan.changes),
            )  # fmt: skip
            return done

    def lapse(self) -> None:
        """Take expired changes out of the rules in force. Cheap where nothing has expired.

        The gateway calls this and `remove_expired` several times a second, so no other caller has to.
        """
        step = self._steps.look()
        expiry = self.next_expiry
        if step:
            what = "forward: what has ended by it does not hold" if step > 0 else "back: what has not ended by it holds"
            remedy = "see that the machine's time is kept (NTP); what ended by the step stays in the state directory for 15 min"
            log.event(logging.WARNING, "clock_set", by_s=round(step, 3), err=f"the wall clock was set {what}", remedy=remedy)
        if step < 0 or (expiry is not None and expiry <= self._wall_clock()):
            self._put_in_force(self._in_force.build(self.state))

    async def remove_expired(self) -> str:
        """Remove expired changes from the state, with a line in the history. Cheap where nothing has expired. Why it failed, or ""."""

        def edit() -> tuple[Sequence[Edit], None]:
            gone = self.state.expired(self._wall_clock(), self._steps.believes)
            if not gone:
                raise _NothingExpiredError  # another change came first
            return gone, None

        if self.read_only:
            return ""
        if self._first_end[0] is not self.state:
            self._first_end = (self.state, self._in_force.first_end(self.state))
        if self._first_end[1] <= self._wall_clock() and self._any_believed():
            try:
                await self.change(edit, Author(SYSTEM), "expiry", "expired")
            except WriteFailedError as error:
                return str(error)
            except _NothingExpiredError:
                pass
        return ""

    def _any_believed(self) -> bool:
        """Whether something that has ended may be removed. Where not, all of it is looked at again a little later only."""
        now = time.monotonic()
        if self._doubted is self.state and now < self._doubt_until:
            return False
        if self.state.expired(self._wall_clock(), self._steps.believes):
            return True
        self._doubted, self._doubt_until = self.state, now + DOUBT_S
        return False

    async def note(self, author: Author, action: str, outcome: str, detail: str = "", reason: str = "") -> bool:
        """Write a journal line that changes nothing: an action refused, failed, or done elsewhere. Whether it could be written."""
        entry = new_entry(self._wall_clock, author, action, outcome, reason, detail=detail)
        async with self._turn:
            try:
                await run_in_thread(self._directory.append, entry)
            except OSError:
                self._count_failure()
                return False
        return True

    def _count_failure(self) -> None:
        """Of a folder that another process has, nothing is broken."""
        self.write_failures += not self._directory.lent

    # ---- the past ------------------------------------------------------------------------------------------------------

    def revisions(self) -> list[int]:
        """The revisions the history still has, in order."""
        return self._directory.journal.revisions()

    async def entries(self, revisions: Sequence[int]) -> list[Entry]:
        """The history's entries of `revisions`; those no longer kept are left out."""
        async with self._turn:
            found = await run_in_thread(lambda: [self._directory.journal.entry(revision) for revision in revisions])
        return [entry for entry in found if entry is not None]

    async def lines(self, before: int, count: int, wanted: Callable[[Entry], bool] = lambda _: True) -> list[Entry]:
        """At most `count` journal lines that are `wanted`, of every outcome and with a sequence below `before`, the latest first."""
        journals = [self._directory.journal, self._directory.refusals]
        return await self._latest(journals, count, lambda entry: entry.sequence < before and wanted(entry))

    async def changes(self, before: int, count: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """At most `count` changes that are `wanted`, of revisions below `before`, the latest first."""

        def which(entry: Entry) -> bool:
            return self._directory.journal.holds(entry) and entry.revision < before and wanted(entry)

        return await self._latest([self._directory.journal], count, which)

    async def _latest(self, journals: Sequence[Journal], count: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """One search reads at a time, and no change waits for it: to read 16 MiB takes some 0.3 s."""
        async with self._searching:
            with contextlib.ExitStack() as files:
                async with self._turn:
                    opened = await run_in_thread(lambda: [journal.opened(files) for journal in journals])
                found = await run_in_thread(lambda: [latest(each, count, wanted) for each in opened])
        return sorted(chain.from_iterable(found), key=attrgetter("sequence"), reverse=True)[:count]

    async def verify(self) -> AuditReport:
        """Check the chains of both journals, as they are on the disk."""
        sequence = self.state.sequence
        report = await run_in_thread(verify_audit, self.folder, sequence)
        if report.ok:
            return report
        async with self._turn:  # a file may have been rolled meanwhile: once more, with nobody writing
            return await run_in_thread(verify_audit, self.folder, self.state.sequence)

    async def snapshot(self, sha256: str) -> Publication | None:
        """A kept quota snapshot, or None where it is not kept any more; raises StateError where it is damaged."""
        return await run_in_thread(self._directory.snapshot, sha256)

    async def edits_back_to(self, revision: int) -> list[Edit] | None:
        """The edits that restore the state as of `revision`; None where the history does not reach back so far."""
        now = self.state.revision
        entries = await self.entries(range(revision + 1, now + 1))
        if len(entries) != now - revision:
            return None
        wall_clock = self._wall_clock()
        before: dict[str, Stored | None] = {}
        for entry in entries:  # the oldest change after `revision` knows what was before
            for change in entry.changes:
                if change.target not in before:
                    before[change.target] = from_json(change.target, change.before)
        before.pop(SHADOW, None)  # it limits nothing, and its file may be gone
        then = self.state.changed(before.items())
        edits = [(target, then.holding(target, wall_clock)) for target in before]
        return [(target, stored) for target, stored in edits if self.state.get(target) != stored]

    async def quotas_before(self) -> tuple[bool, PublishedQuotas | None]:
        """The quotas that were in force before those now in force were first published (None: none), and whether the history knows.

        A rollback puts a publication back as it was, so each further one goes one further back.
        """
        now = self.state.quotas
        for entry in await self.entries(self.revisions()) if now is not None else ():
            for change in entry.changes:
                after = from_json(QUOTAS, change.after) if change.target == QUOTAS else None
                if isinstance(after, PublishedQuotas) and now is not None and (after.sha256, after.at) == (now.sha256, now.at):
                    before = from_json(QUOTAS, change.before)
                    assert before is None or isinstance(before, PublishedQuotas)
                    return True, before
        return False, None

    def __repr__(self) -> str:
        return f"<Store {self.folder} {self.state!r}>"


def _first_rules(
    directory: StateDirectory,
    file_rules: tuple[Rule, ...],
    rule_texts: RuleTexts,
    wall_clock: Callable[[], float],
    hourly: HourlyRaise | None = None,
) -> RulesInForce:
    """The rules of a folder that has just been read. Raises StoreError, or RuleError for `file_rules`; then the folder is closed."""
    try:
        in_force = RulesInForce(file_rules, rule_texts, wall_clock)
        in_force.hourly = hourly
        in_force.quotas, in_force.shadow_quotas = directory.read_quotas()
        try:
            in_force.rules = in_force.build(directory.state)
        except RuleError as error:
            raise StateError(
                f"{directory.path / STATE}: {error}. Start the version that wrote it, remove what is named there, and then start this one; "
                f"or move {STATE}, {HISTORY} and what begins with their names aside to start without live changes"
            ) from error
        directory.warnings += in_force.warn_of_changes_without_a_mode(directory.state)
    except StateError as error:
        directory.close()
        raise StoreError(str(error)) from error
    except BaseException:
        directory.close()
        raise
    return in_force
