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
import copy
import errno
import fcntl
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import trio
from msgspec.structs import replace as with_fields

from admin.http.side_thread import run_in_thread
from admin.store import recovery
from admin.store.audit_chain import AuditReport, verify_audit
from admin.store.changes import Author, Plan, StoreError, WriteFailedError
from admin.store.clock_steps import ClockSteps
from admin.store.journal import FILE as HISTORY
from admin.store.journal import REFUSALS, ROTATE_AT, Entry, Journal, latest
from admin.store.level_targets import is_level_target, level_key_of, subjects_of
from admin.store.live_rules import MAX_LIVE_RULES, NoTexts, RuleTexts, merged
from admin.store.parsed_changes import ParsedChanges
from admin.store.snapshots import KEEP, Publication, Snapshots
from admin.store.state import (
    LIVE_RULES,
    QUOTAS,
    SHADOW,
    Edit,
    PublishedQuotas,
    State,
    StateError,
    Stored,
    StoredOverride,
    StoredRule,
    encode_state,
    end_of,
    format_time,
    from_json,
    has_expired,
    key_of,
    live,
    parse_time,
    rule_target,
)
from common import log
from common.durable_files import UNWRITABLE, FileSystem, ReadOnlyFiles
from common.durable_files import replace as replace_file
from limiter.rules.rule import TRIED_BY, fitting
from limiter.rules.rule_set import RuleError, RuleSet, unruled
from limiter.rules.rule_text import RuleTextError

if TYPE_CHECKING:
    from limiter.quota_snapshot import Quota
    from limiter.rules.hourly_raise import HourlyRaise
    from limiter.rules.rule_set import Override, Rule
    from limiter.topics import TopicName

__all__ = ["Author", "Plan", "Store", "StoreError", "WriteFailedError"]

STATE: Final = "state.json"
LOCK: Final = "lock"
MAX_TARGETS_LOGGED: Final = 10  # targets of one change that its log line names; a guess
MAX_KEYS: Final = 20_000  # live changes of keys; the whole state is written at each change, about 3 MB then
REFUSED: Final = ("refused", "failed")  # outcomes of requests, which are kept apart from changes
NO_FOLDER: Final = Path("/proc/self/no-state")  # is never there: it is read in place of a folder that this user may not look into
HANDED_OVER: Final = "another process has taken over"
LENT: Final = "another process is taking over, or has failed to and is not gone yet"
WAYS_OUT: Final = {
    HANDED_OVER: "ask that one",
    LENT: "wait for some seconds",
}  # else: what a folder needs that is read-only since the start
OBSERVING: Final = "another process still has it"
DOUBT_S: Final = 5.0  # between two looks at ends that are not believed, of which there may be 20,000; a guess
AHEAD_S: Final = 60.0  # by which the last line may be ahead of the clock; a guess
SYSTEM: Final = "sluice"  # the author of changes without a request: expiry

READ_ANEW: Final = (  # attributes of a store that has taken the folder; what follows from the state with them
    "_lock", "read_only", "_files", "_snapshots", "warnings", "_to_void", "_journal", "_refusals", "state", "_quotas", "_shadow_quotas",
    "_rules", "_live", "_keys", "_levels", "_merged",
)  # fmt: skip

EditNow: TypeAlias = Callable[[], tuple[Sequence[Edit], Publication | None]]


class _NothingExpiredError(Exception):
    """Ends a change that has become pointless."""


def same(one: list[tuple[str, StoredRule]], other: list[tuple[str, StoredRule]]) -> bool:
    """Whether these are the very same live rules. Cheap: it is asked several times a second."""
    return len(one) == len(other) and all(a is b for (_, a), (_, b) in zip(one, other, strict=True))


class Store:
    """The state directory, open. One process has it at a time (a lock file sees to that)."""

    def __init__(
        self,
        folder: Path,
        rules: tuple[Rule, ...],
        wall_clock: Callable[[], float],
        files: FileSystem,
        rotate_at: int,
        rule_texts: RuleTexts,
        steady: Callable[[], float] | None,
        *,
        observing: bool,
    ) -> None:
        self.folder = folder
        self._content = folder  # what is read; NO_FOLDER where that is not for this user
        self._rotate_at = rotate_at
        self.rule_texts = rule_texts
        self._live: dict[str, tuple[StoredRule, Rule]] = {}  # by name: each live rule as stored, and as read
        self._live_end: tuple[RuleSet | None, float] = (None, math.inf)  # of which rules, and the first end of one that was added live
        self._keys = ParsedChanges(key_of)
        self._levels = ParsedChanges(level_key_of)
        self._merged: tuple[tuple[Rule, ...], list[tuple[str, StoredRule]], tuple[Rule, ...]] = (
            (),
            [],
            (),
        )  # of which rules, and the whole
        self._files = files
        self._wall_clock = wall_clock
        self._path = folder / STATE
        self._snapshots = Snapshots(folder, files)
        self._turn = trio.Lock()
        self._searching = trio.Lock()
        self._quotas: Mapping[TopicName, Quota] = {}
        self._shadow_quotas: Mapping[TopicName, Quota] = {}
        self._to_void: list[tuple[int, str]] = []  # sequences of lines to be taken back, and why
        self._first_end: tuple[State | None, float] = (None, math.inf)  # of which state, and its `first_end`
        self.enforce: Callable[[RuleSet], None] | None = None  # called with every new set of rules
        self.warnings: list[str] = []
        self.write_failures = 0
        self.quotas_raised = 0  # by `raise_quotas`
        self._hourly: HourlyRaise | None = None
        self._steps = ClockSteps(wall_clock, steady)
        self._doubted: State | None = None  # of which state nothing that has ended was believed
        self._doubt_until = 0.0  # monotonic
        self.read_only = ""  # why nothing can be stored until the next start
        self.file_rules = rules  # as they stand in the configuration, without live changes
        self._lock = -1
        shut = self._open_folder()
        if shut:
            self.read_only = shut
            self._files = ReadOnlyFiles()
            self._content = NO_FOLDER
            self._path = NO_FOLDER / STATE
            self._snapshots = Snapshots(NO_FOLDER, self._files)
            self.warnings.append(
                f"{folder} cannot be read or made ({shut}): the configuration's limits hold, and no live change, quota or token of before; "
                "live changes are refused. Give the directory to the gateway's user and start it again"
            )
        elif observing:
            self.read_only = OBSERVING
            self._files = ReadOnlyFiles()
        else:
            self._lock, self.read_only = self._hold_lock()
            self._warn_of_read_only()
        self._read()

    def _read(self) -> None:
        """Read the folder's files. Raises StoreError, OSError, RuleError."""
        try:
            read_only = bool(self.read_only)
            self._journal = recovery.open_journal(self._files, self._content, self._rotate_at, self.warnings, read_only=read_only)
            self._refusals = recovery.open_journal(
                self._files, self._content, self._rotate_at, self.warnings, REFUSALS, read_only=read_only
            )
            self._warn_of_the_future()
            self.state = recovery.load_state(self._files, self._path, self._journal, self.warnings)
            self._adopt()
            self._rules = RuleSet(self.file_rules)
            self._rules = self._first_rules()
            self._warn_of_changes_without_a_mode()
            if self._content is self.folder and self.folder.stat().st_mode & 0o077:
                self.warnings.append(f"others can read {self.folder}; chmod 700 it")
        except StateError as error:
            self.close()
            raise StoreError(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _warn_of_read_only(self) -> None:
        if self.read_only:
            self.warnings.append(
                f"{self.folder} is read-only ({self.read_only}): live changes cannot be stored, and are refused; those of before hold. "
                "Make it writable and start the gateway again"
            )

    def _warn_of_changes_without_a_mode(self) -> None:
        """A version before stored limits without a mode. Each keeps its rule's, so that an upgrade refuses nothing that passed before."""
        if all(rule.mode == "enforce" for rule in self._rules.rules):
            return
        found = []
        for target, stored in (*self.state.keys.items(), *self.state.levels.items()):
            if stored.mode is None and (stored.messages or stored.bytes or stored.concurrent):
                if is_level_target(target):
                    holding = [each for subject in subjects_of(level_key_of(target)) for each in self._rules.matched(subject)]
                else:
                    holding = self._rules.effective(key_of(target))
                if any(each.origin == "override" and each.rule.mode != "enforce" for each in holding):
                    found.append(target)
        if found:
            self.warnings.append(
                f"{len(found)} live changes of limits are not enforced ({', '.join(found[:MAX_TARGETS_LOGGED])}): a version before stored "
                "them without a mode, so they have their rules', which is not enforce; set them anew to enforce them"
            )

    def _first_rules(self) -> RuleSet:
        """Raises StateError where the state has what cannot be in force."""
        try:
            return self._build(self.state)
        except RuleError as error:
            raise StateError(
                f"{self._path}: {error}. Start the version that wrote it, remove what is named there, and then start this one; or move "
                f"{STATE}, {HISTORY} and what begins with their names aside to start without live changes"
            ) from error

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
        path = Path(folder)
        return cls(path, rules, wall_clock, files or FileSystem(), rotate_at, rule_texts or NoTexts(), steady, observing=observing)

    def _open_folder(self) -> str:
        """Make the folder if need be. Why this user cannot have it at all; "" where it can be read. Raises OSError."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in (STATE, HISTORY, REFUSALS):
                if (self.folder / name).is_file():  # raises where the folder may not be looked into
                    (self.folder / name).open("rb").close()
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            return error.strerror or str(error)
        return ""

    def close(self) -> None:
        """Let another process have the folder. Nothing is buffered, so nothing is written."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def hand_over(self) -> None:
        """Let another process have the folder when the change that is under way is stored; from now on all are refused.

        `give` says that this is for good, and `take` has the folder back.
        """
        async with self._turn:
            if self._content is not NO_FOLDER:  # which nobody can have, for a reason that stays
                self.read_only = LENT
            self.close()

    def give(self) -> None:
        """The other process serves."""
        self.read_only = HANDED_OVER

    async def take_again(self) -> None:
        """`take` between two changes: the plan of one that waits is made on what the other process has left.

        Messages go on meanwhile: 19,000 changes take 0.1 s to read.
        """
        async with self._turn:
            if self._content is not NO_FOLDER:
                self._become(await run_in_thread(self._taken))

    def take(self, files: FileSystem | None = None) -> None:
        """Have the folder, which was only observed or was handed over, and read it anew: it may have changed.

        Raises as `open`; then nothing has changed here.
        """
        if self._content is not NO_FOLDER:
            self._become(self._taken(files))

    def _taken(self, files: FileSystem | None = None) -> Store:
        """A store like this one that has the folder, and has read it. On any thread: this one stays as it is."""
        taken = copy.copy(self)
        taken._lock, taken.read_only = self._hold_lock()  # only who has the lock may write
        taken._files = files or FileSystem()
        taken._snapshots = Snapshots(self.folder, taken._files)
        taken.warnings, taken._to_void, taken._live = [], [], {}
        taken._keys, taken._levels = ParsedChanges(key_of), ParsedChanges(level_key_of)
        taken._warn_of_read_only()
        taken._read()
        return taken

    def _become(self, taken: Store) -> None:
        for name in READ_ANEW:
            setattr(self, name, getattr(taken, name))
        if taken.file_rules is not self.file_rules or taken._hourly is not self._hourly:  # they were replaced while it was read
            self._rules = self._build(self.state)

    # ---- the rules -----------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        return self.state.revision

    @property
    def next_expiry(self) -> float | None:
        """When (seconds since 1970) the first live change in the current rules expires; see `lapse`."""
        if self._live_end[0] is not self._rules:  # of another state there are others
            now = self._wall_clock()
            ends = [end for end in map(end_of, self.state.live_rules.values()) if end is not None and end > now]
            self._live_end = (self._rules, min(ends, default=math.inf))
        first = min(self._live_end[1], math.inf if self._rules.next_expiry is None else self._rules.next_expiry)
        return None if first == math.inf else first

    @property
    def quotas(self) -> Mapping[TopicName, Quota]:
        """The published quotas in force."""
        return self._quotas

    @property
    def shadow_quotas(self) -> Mapping[TopicName, Quota]:
        """Those that are only tried."""
        return self._shadow_quotas

    def rules(self) -> RuleSet:
        """All rules as they hold now, which are those in force. The same object until something changes or expires."""
        self.lapse()
        return self._rules

    def replace_file_rules(self, rules: tuple[Rule, ...], compiled: RuleSet | None = None) -> RuleSet:
        """Take the configuration's rules anew; live changes stay (see `unfit`). Raises RuleError, and then nothing has changed.

        With `compiled`, a set made `with_live_rules`, this takes little time.
        """
        before, self.file_rules = self.file_rules, rules
        try:
            self._rules = self._build(self.state, like=compiled)
        except RuleError:
            self.file_rules = before
            raise
        return self._rules

    def with_live_rules(self, file_rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """`file_rules` and the rules added live, in the order in which they would be tried; for `replace_file_rules`. On any thread."""
        now = self._wall_clock()
        live = {name: stored for name, stored in self.state.live_rules.items() if not has_expired(stored, now)}
        return merged(file_rules, {name: self._rule_of(name, stored) for name, stored in live.items()}, live)

    def live_rules_over(self, file_rules: tuple[Rule, ...]) -> list[str]:
        """Names that both a rule of the file and one added live have: the live one holds."""
        return [rule.name for rule in file_rules if rule.name in self.state.live_rules]

    def all_rules(self, state: State | None = None, like: RuleSet | None = None) -> tuple[Rule, ...]:
        """The rules of the file and those added live, in the order in which they are tried. The same object until one of them changes."""
        now = self._wall_clock()
        live = [(name, rule) for name, rule in (state or self.state).live_rules.items() if not has_expired(rule, now)]
        rules, earlier, found = self._merged
        if rules is not self.file_rules or not same(earlier, live):
            read = {name: self._rule_of(name, stored) for name, stored in live}
            found = merged(self.file_rules, read, dict(live))
            if like is not None and found == like.file_rules:
                found = like.file_rules  # which are compiled
            self._merged = (self.file_rules, live, found)
        return found

    def _rule_of(self, name: str, stored: StoredRule) -> Rule:
        """A live rule as the limiter's; raises RuleError."""
        known = self._live.get(name)
        if known is None or known[0] is not stored:
            try:
                known = self._live[name] = (stored, self.rule_texts.read(name, stored.rule))
            except RuleTextError as error:
                raise RuleError("", f"the live rule {name!r} cannot be used: {error}") from error
        return known[1]

    def override(self, target: str) -> StoredOverride | None:
        """The live change of a limit or of a rule that has not ended."""
        found = self.state.holding(target, self._wall_clock())
        assert found is None or isinstance(found, StoredOverride)
        return found

    def live_rule(self, name: str) -> StoredRule | None:
        """The rule of that name that was added live and has not ended."""
        found = self.state.live_rules.get(name)
        return None if has_expired(found, self._wall_clock()) else found

    def unfit(self, state: State | None = None) -> dict[str, str]:
        """Live changes of rules that have not ended but do not hold, by the rule's name, and why: the rule is gone, or has changed."""
        changed = self._changed_rules(state or self.state)
        known = {rule.name: rule for rule in self.all_rules(state)} if changed else {}
        reasons: dict[str, str] = {}
        for name, stored in changed.items():
            rule = known.get(name)
            if rule is None:
                reasons[name] = "no rule of the configuration has this name"
                continue
            try:
                live(stored).over(rule)
            except ValueError as error:
                reasons[name] = str(error)
        return reasons

    def _changed_rules(self, state: State) -> dict[str, StoredOverride]:
        now = self._wall_clock()
        return {name: stored for name, stored in state.rules.items() if state.holding(rule_target(name), now) is not None}

    def _build(
        self,
        state: State,
        quotas: Mapping[TopicName, Quota] | None = None,
        like: RuleSet | None = None,
        shadow: Mapping[TopicName, Quota] | None = None,
    ) -> RuleSet:
        rules = self.all_rules(state, like)
        unfit = self.unfit(state)
        return RuleSet(
            rules,
            {name: live(stored) for name, stored in self._changed_rules(state).items() if name not in unfit},
            self._keys.of(state.keys),
            self._quotas if quotas is None else quotas,
            state.revision,
            self._wall_clock(),
            self._rules if like is None else like,
            self._shadow_quotas if shadow is None else shadow,
            self._hourly,
            self._levels.of(state.levels),
        )

    def raise_quotas(self, hourly: HourlyRaise | None, raised: int) -> None:
        """Let quotas hold as `hourly` raises them until this is called again; `raised` is how many that are.

        Not a change of the state: it is not durable, has no revision, and quotas published meanwhile are raised by it too.
        """
        before, self.quotas_raised = self.quotas_raised, raised
        if hourly is self._hourly:
            return
        self._hourly = hourly
        if before or raised:
            self._rules = self._build(self.state)
            if self.enforce is not None:
                self.enforce(self._rules)

    def plan(self, edits: Sequence[Edit], published: Publication | None = None, *, restoring: bool = False) -> Plan:
        """The plan of `edits`, which changes nothing. Raises RuleError where the limiter would refuse them.

        `published` must be given with an edit of `quotas` or `quotas/shadow` that publishes one. `restoring` what was there once, a
        change of a rule may be unfit by now.
        """
        state = self.state.changed(edits)
        if len(state.live_rules) > MAX_LIVE_RULES:
            raise RuleError("name", f"there are {MAX_LIVE_RULES} live rules already; put some into the rules file and remove them here")
        if len(state.keys) + len(state.levels) > MAX_KEYS:
            raise RuleError("limits", f"there are {MAX_KEYS} live changes of keys already; publish quotas, or write rules, instead")
        self._keys.follow(self.state.keys, edits, state.keys)
        self._levels.follow(self.state.levels, edits, state.levels)
        unfit = self.unfit(state)
        for target, after in edits:
            name = target.removeprefix("rules/")
            if target.startswith("rules/") and after is not None and name in unfit and not restoring:
                self._say_unfit(name, live(after) if isinstance(after, StoredOverride) else None)
        in_force, tried = self._quotas, self._shadow_quotas
        for target, after in edits:
            if target in (QUOTAS, SHADOW):
                assert after is None or published is not None
                by_topic = {} if after is None or published is None else published.by_topic
                in_force, tried = (by_topic, tried) if target == QUOTAS else (in_force, by_topic)
        rules = self._build(state, in_force, shadow=tried)
        for target, after in edits:
            if after is None or target.startswith(("rules/", QUOTAS, LIVE_RULES)):
                continue
            if not is_level_target(target):
                self._check_holds(rules, target)
            elif not restoring:
                self._check_level_holds(rules, target)
        return Plan(state, self.state.changes(edits), rules)

    def _say_unfit(self, name: str, change: Override | None) -> None:
        """Raise RuleError that names the part of the change that does not fit its rule."""
        for rule in self.all_rules():
            if rule.name == name and change is not None:
                change.over(rule)
        raise RuleError("name", f"no rule of the configuration is called {name!r}")

    @staticmethod
    def _check_holds(rules: RuleSet, target: str) -> None:
        """A change of a key must have something to change. Raises RuleError."""
        for effective in rules.effective(key_of(target)):
            if effective.origin == "override" and effective.limit.limits_nothing():
                raise RuleError("messages", "no rule and no quota limits this key yet; give a rate of messages or bytes too")
            if effective.origin == "override" and effective.rule.algorithm not in TRIED_BY and effective.own_candidate:
                raise RuleError("candidate", f"is for limits that are rates, not for algorithm: {effective.rule.algorithm}; leave it out")
            change = rules.overrides.get(key_of(target))
            if effective.origin == "override" and change is not None and fitting(change, effective.rule) != change:
                change.over(effective.rule)  # raises RuleError for the part that does not fit

    @staticmethod
    def _check_level_holds(rules: RuleSet, target: str) -> None:
        """A live change of a client, a group, ... must fit the rules of its level, and one of them must limit it. Raises RuleError."""
        key = level_key_of(target)
        change = rules.level_overrides.get(key)
        if change is None:  # has expired
            return
        found = {each.rule.name: each for subject in subjects_of(key) for each in rules.matched(subject) if each.per == key.per}
        for effective in found.values():
            if effective.limit.limits_nothing():
                raise RuleError("messages", "no rule limits this yet; give a rate of messages or bytes too")
        change.over(unruled(key.per, key.operation))
        for rule in rules.rules:
            if rule.name in found and fitting(change, rule) != change:
                change.over(rule)  # raises RuleError for the part that does not fit

    # ---- changing ------------------------------------------------------------------------------------------------------

    async def change(self, edit: EditNow, author: Author, action: str, reason: str = "", *, restoring: bool = False) -> Plan:
        """Make a change: when this returns it is durable and in force. Changes take turns; `edit` is called when its turn has come.

        An exception of `edit` ends the change (a precondition that no longer holds). Raises RuleError, WriteFailedError.
        Once begun a change is not cancelled.
        """
        async with self._turn:
            edits, published = edit()
            await trio.lowlevel.cancel_shielded_checkpoint()  # messages go first, here and below: each part takes a few 0.1 ms
            before = self._rules
            plan = self.plan(edits, published, restoring=restoring)
            await trio.lowlevel.cancel_shielded_checkpoint()
            entry = self._entry(author, action, "applied", reason, revision=plan.state.revision, changes=plan.changes)
            try:
                self.state = await run_in_thread(self._commit, plan.state, entry, published)
            except OSError as error:
                self._count_failure()
                raise WriteFailedError(error, read_only=bool(self.read_only), way_out=WAYS_OUT.get(self.read_only, "")) from error
            self._quotas = plan.rules.quotas
            self._shadow_quotas = plan.rules.shadow_quotas
            # The plan's, unless the file's rules were replaced, quotas raised, or something expired meanwhile.
            self._rules = plan.rules if self._rules is before else self._build(self.state, like=plan.rules)
            if self.enforce is not None:
                self.enforce(self._rules)
            done = Plan(self.state, plan.changes, self._rules)
            await trio.lowlevel.cancel_shielded_checkpoint()
            targets = [change.target for change in plan.changes[:MAX_TARGETS_LOGGED]]
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
            self._rules = self._build(self.state)
            if self.enforce is not None:
                self.enforce(self._rules)

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
            self._first_end = (self.state, self._first_end_of(self.state))
        if self._first_end[1] <= self._wall_clock() and self._any_believed():
            try:
                await self.change(edit, Author(SYSTEM), "expiry", "expired")
            except WriteFailedError as error:
                return str(error)
            except _NothingExpiredError:
                pass
        return ""

    def _first_end_of(self, state: State) -> float:
        """When (seconds since 1970) the first live change ends, whether or not it holds; infinity where none does."""
        parsed = (*self._keys.of(state.keys).values(), *self._levels.of(state.levels).values())
        ends = [change.expires_at for change in parsed if change.expires_at is not None]
        ends += [end for stored in chain[Stored](state.rules.values(), state.live_rules.values()) if (end := end_of(stored)) is not None]
        return min(ends, default=math.inf)

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
        entry = self._entry(author, action, outcome, reason, detail=detail)
        async with self._turn:
            try:
                await run_in_thread(self._add, entry)
            except OSError:
                self._count_failure()
                return False
        return True

    def _entry(self, author: Author, action: str, outcome: str, reason: str, **rest: object) -> Entry:
        """A line of the journal, but for its sequence."""
        entry = Entry(0, format_time(self._wall_clock()), author.name, action, outcome, reason=reason)
        return with_fields(entry, role=author.role, address=author.address, request_id=author.request_id, **rest)

    # ---- on a thread, one at a time ------------------------------------------------------------------------------------

    def _add(self, entry: Entry) -> int:
        self._check_writable()
        self._take_back()
        entry = with_fields(entry, sequence=self._next_sequence())
        (self._refusals if entry.outcome in REFUSED else self._journal).append(entry)
        return entry.sequence

    def lent(self) -> str:
        """Why another process has the folder; "" while this one has it."""
        return self.read_only if self.read_only in WAYS_OUT else ""

    def _count_failure(self) -> None:
        """Of a folder that another process has, nothing is broken."""
        self.write_failures += self.read_only not in WAYS_OUT

    def _check_writable(self) -> None:
        """Raises OSError where the folder is read-only. It may have become writable, or another gateway's: the start finds that out."""
        if self.read_only:
            known = self.read_only in WAYS_OUT
            raise OSError(errno.EROFS, self.read_only if known else f"it was read-only when the gateway started: {self.read_only}")

    def _next_sequence(self) -> int:
        return max(self._journal.sequence, self._refusals.sequence) + 1

    def _commit(self, state: State, entry: Entry, published: Publication | None) -> State:
        """Make `state` durable; raises OSError, and then the old one is."""
        self._check_writable()
        if published is not None:
            self._snapshots.keep(published)
        if not self._path.exists():  # so that a journal with changes and no state file always means that the file was removed
            replace_file(self._files, self._path, encode_state(self.state))
        sequence = self._add(entry)
        dropped = list(state.snapshots[KEEP:])
        tried = self.state.shadow
        if tried is not None and tried != state.shadow and tried.sha256 not in state.snapshots[:KEEP]:
            dropped.append(tried.sha256)
        if state.shadow is not None and state.shadow.sha256 in dropped:
            dropped.remove(state.shadow.sha256)
        state = replace(state, sequence=sequence, snapshots=state.snapshots[:KEEP])
        data = encode_state(state)
        try:
            replace_file(self._files, self._path, data, keep_previous=True)
        except OSError as error:
            self._to_void.append((sequence, error.strerror or str(error)))
            with contextlib.suppress(OSError):  # else taken back before the next line is written, or at the next start
                recovery.put_back(self._files, self._path, data)
                self._take_back()
            raise
        self._snapshots.drop(dropped)
        return state

    def _take_back(self) -> None:
        """Write the void lines that are due; raises OSError."""
        while self._to_void:
            sequence, why = self._to_void[0]
            entry = self._entry(Author(SYSTEM), "void", "void", "", detail=why, voids=sequence)
            self._journal.append(with_fields(entry, sequence=self._next_sequence()))
            del self._to_void[0]

    # ---- the past ------------------------------------------------------------------------------------------------------

    def revisions(self) -> list[int]:
        """The revisions the history still has, in order."""
        return self._journal.revisions()

    async def entries(self, revisions: Sequence[int]) -> list[Entry]:
        """The history's entries of `revisions`; those no longer kept are left out."""
        async with self._turn:
            found = await run_in_thread(lambda: [self._journal.entry(revision) for revision in revisions])
        return [entry for entry in found if entry is not None]

    async def lines(self, before: int, count: int, wanted: Callable[[Entry], bool] = lambda _: True) -> list[Entry]:
        """At most `count` journal lines that are `wanted`, of every outcome and with a sequence below `before`, the latest first."""

        return await self._latest([self._journal, self._refusals], count, lambda entry: entry.sequence < before and wanted(entry))

    async def changes(self, before: int, count: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """At most `count` changes that are `wanted`, of revisions below `before`, the latest first."""

        def which(entry: Entry) -> bool:
            return self._journal.holds(entry) and entry.revision < before and wanted(entry)

        return await self._latest([self._journal], count, which)

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
        return await run_in_thread(self._snapshots.read, sha256)

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

    # ---- opening -------------------------------------------------------------------------------------------------------

    def _hold_lock(self) -> tuple[int, str]:
        """The lock's descriptor, -1 without one, and why nothing can be stored, or "". Raises OSError, StoreError."""
        try:
            handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            return -1, error.strerror or str(error)
        refused = "" if os.access(self.folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise StoreError(
                f"{self.folder} is in use by another gateway. To start the next process of the same gateway beside it, both need "
                "gateway.takeover, the running one since its start; otherwise stop it first. Another gateway needs its own "
                "gateway.state_directory"
            ) from error
        return handle, refused

    def _warn_of_the_future(self) -> None:
        """What was written last was not written later than now, or the clock has been set back since."""
        last = max(self._journal.last_at, self._refusals.last_at)
        try:
            ahead = parse_time(last) - self._wall_clock() if last else 0.0
        except ValueError:
            return
        if ahead > AHEAD_S:
            self.warnings.append(
                f"the history's last line is of {last}, {ahead:.0f} s after now: the clock was ahead then, or is behind now. Live changes "
                "that ended meanwhile by that clock were removed; `sluice history list` has them (action: expiry)"
            )

    def _adopt(self) -> None:
        """Void the journal's lines that the state does not have, and read the published quotas; raises StateError."""
        uncommitted = [] if self.read_only else self._journal.after(self.state.sequence)
        self._to_void += [(sequence, "the gateway stopped before the change was made") for sequence in uncommitted]
        self._journal.sequence = max(self._journal.sequence, self.state.sequence)
        try:
            self._take_back()
        except OSError as error:
            self.warnings.append(f"{self.folder} cannot be written: {error.strerror}; limits hold, changes of them will fail")
        self._shadow_quotas = {}
        if self.state.shadow is not None:
            tried = self._snapshots.read(self.state.shadow.sha256)
            self._shadow_quotas = {} if tried is None else tried.by_topic
            if tried is None:
                self.warnings.append(f"{self._snapshots.path(self.state.shadow.sha256)} is gone: no quotas are tried; publish them again")
        self._quotas = {}
        if self.state.quotas is None:
            return
        published = self._snapshots.read(self.state.quotas.sha256)
        if published is not None:
            self._quotas = published.by_topic
        elif self._snapshots.folder.exists():
            path = self._snapshots.path(self.state.quotas.sha256)
            raise StateError(
                f"{path} is missing though its quotas are in force; put it back, or move {path.parent} aside to start without quotas"
            )
        else:
            self.warnings.append(f"{self._snapshots.folder} is gone: no quotas hold until some are published again")

    def __repr__(self) -> str:
        return f"<Store {self.folder} {self.state!r}>"
