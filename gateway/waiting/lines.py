"""The lines of a connection: which of them wait, how much, and until when. Every conversation has one of these (`Conversation.lines`).

    hold     ─►  behind the others of its line; a part that was taken goes back to its old place
    take_due ─►  the requests whose time has come, of all lines in turn; until each is settled or held anew they are `taken`
    settle   ─►  one of them is. After the last: what waited for these alone, to be passed on

Several lines may be due at the same moment: those that have just had something come last (`end_turn`), however little room there is. While
the upstream stands within a frame that flows through (`HeldBudget.frame_left`), nothing is let go: it would land in the middle of it.

Where a rule pages, most of what a line holds is in its `PagedQueue` (`disk/queue.py`), and `Line.parts` has what comes next. It is filled
up again when half of that is gone.

Writes `held_bytes`, `held_messages`, `blocking` and `next_due` of the budget, which the session goes by. What a part costs are its bytes
and `overhead` for its objects, or many small ones would take several times the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, added, put
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import BODY, EXPIRED, POSTPONED, REQUEST, Part
from gateway.pipeline.reports import Reports
from gateway.waiting.disk.queue import PagedQueue
from gateway.waiting.due_queue import DueQueue
from gateway.waiting.line import Line
from limiter.keys import Key
from limiter.limits import NEVER

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket

IN_MEMORY: Final = 0  # how a part is held
BLOCKING: Final = 1  # and its client is not read until it is settled
PAGED: Final = 2  # and what comes behind it waits on disk where it is too much for memory


class Lines:
    """Those of one connection. A protocol's subclass says what has an order, what can be held, and how what has waited goes on."""

    def __init__(self, context: ConversationContext, budget: HeldBudget, reports: Reports, overhead: int = 0) -> None:
        self.has_paged = False  # something of this connection has been paged
        self.context = context
        self.budget = budget
        self.reports = reports
        self.overhead = overhead  # bytes of memory that a held part takes beside its own
        self.by_name: dict[object, Line] = NO_ENTRIES  # in turn: those with held parts, or with parts away with the judge
        self.due_queue = DueQueue()
        self.taken = 0  # parts away with the judge, of all lines
        self.damage = ""  # why the rest of what a line has on disk is lost
        self.patience_ns = NEVER  # ns; how long clients of this protocol may be kept waiting for one request
        self.had_turn = False  # one of the line of what is just refused, or of its key, has just passed: others go first
        self.turns: dict[Bucket, int] = NO_ENTRIES  # monotonic ns; when what waits for that limit is judged again (`actions/holding.py`)
        self._last_turn = 0
        self.forward: Callable[[Part], None] | None = None  # takes what goes on; None: nothing can wait, or the connection is over

    # ---- what a protocol says --------------------------------------------------------------------------------------

    def name_of(self, part: Part) -> object:
        """What has an order: parts of the same line wait behind each other, and others do not."""
        return part.ordering_key

    def line_of(self, part: Part) -> Line | None:
        """The line in which `part` has its place; None where it has none, or nothing of its line waits."""
        return self.by_name.get(self.name_of(part))

    def line_for(self, part: Part) -> Line | None:
        """The line in which `part` is to wait, a new one where nothing of it waits; None where it cannot be held."""
        name = self.name_of(part)
        return self.by_name.get(name) or Line(name)

    def pass_on(self, part: Part) -> None:
        """`part` is the next of its line, if it has one, and goes on."""
        assert self.forward is not None
        self.forward(part)

    def next_due(self) -> int:
        """When `take_due` has something to give next."""
        if self.damage:
            return 0
        return NEVER if self.budget.frame_left or self.taken else self.due_queue.next_due

    def lifetimes(self, part: Part) -> list[tuple[Part, int]]:
        """`part`, cut into runs of requests that are of use for the same time (ns; NEVER: they do not say); `part` itself comes last."""
        return [(part, NEVER)]

    def patience_with(self, part: Part) -> int:
        """How long `part`, which has a reservation, may be kept before it is refused; ns."""
        return self.patience_ns

    def may_page(self, part: Part) -> bool:
        """Whether `part` may wait on disk, and behind what does."""
        return True

    def would_overtake(self, part: Part) -> bool:
        """Whether `part`, which has just come and cannot wait so long, would pass by what is paged: it is refused unjudged."""
        return False

    def key_of(self, line: Line, data: bytes) -> Key | None:
        """The key of a request of `line`, by its bytes."""
        raise NotImplementedError

    def restore(self, part: Part) -> Part:
        """`part`, read back from the disk, as the protocol knows it."""
        return part

    def is_answered(self, part: Part) -> bool:
        """Whether `part`, which is no request, is answered even when all that waits with it is given up."""
        return False

    def may_leave_memory(self, part: Part) -> bool:
        """Whether `part` is whole again when it was read back from the disk."""
        return True

    def describe(self, line: Line) -> str:
        """`line` in words, for operators."""
        return str(line.name)

    # ---- what becomes of a part ------------------------------------------------------------------------------------

    def admit(self, part: Part) -> None:
        """`part` has passed: it goes on, or waits behind what is before it in its line."""
        line = self.line_of(part)
        if line is None or line.idle():
            self.pass_on(part)
        elif line.waits():
            part.paid = part.kind == REQUEST and part.passed > 0 and not part.requeue_without_slots(self.reports.endings)
            self._pass_all(self._place(line, part, 0))
        else:  # it was taken, and none before it has come back
            self.count_out(part)
            self.pass_on(part)
            self._pass_all(self.settle(line))
            self.end_turn(line)

    def let_go(self, part: Part) -> None:
        """`part` is settled without going on."""
        line = self.line_of(part)
        if line is not None and line.taken:
            self.count_out(part)
            self._pass_all(self.settle(line))
        else:
            self.end_wait(part)

    def hold(self, part: Part, due: int, manner: int = IN_MEMORY) -> bool:
        """Keep `part`, which was refused, until `due` (monotonic ns), when it is judged again. False, changing nothing, where it cannot be.

        `manner`: BLOCKING and PAGED as well. On disk, which takes what the client sends, nothing blocks before its turn comes.
        """
        line = self.line_for(part)
        if line is None:
            return False
        if manner == PAGED:
            if not self.may_page(part):
                return False
            self._begin_paging(line, part)
        self.keep(line, part, due, blocking=manner == BLOCKING)
        return True

    def keep(self, line: Line, part: Part, due: int, *, blocking: bool = False) -> None:
        """`part` waits in `line` until `due`, when it is judged again; 0: until those before it have gone."""
        held = part.begin_hold()
        self._unblock(part)
        if blocking:
            held.blocking = True
            self.budget.blocking += 1
        self._pass_all(self._place(line, part, due))

    def postpone(self, part: Part, now: int) -> bool:
        """`part`, which was not judged, waits behind what is paged of its line, for as long as that may. False, changing nothing,
        where it cannot be held."""
        line = self.line_for(part)
        if line is None:
            return False
        paged = line.paged
        if paged is None:
            self.keep(line, part, 0)
            return True
        for run, lifetime in self.lifetimes(part) if paged.drop_expired else [(part, NEVER)]:
            run.deadline = min(now + paged.max_age_ns, now + lifetime, NEVER)
            self.keep(line, run, 0)
        return True

    def waits_behind(self, part: Part) -> bool:
        """Whether `part`, which has just come, waits behind what is paged: then it is judged when its turn comes (`postpone`)."""
        line = self.line_of(part)
        return line is not None and line.paged is not None and line.taken == 0 and line.waits() and self.may_page(part)

    def mark_unjudged(self, parts: list[Part], now: int) -> None:
        """Mark what is not judged now: what waits behind something paged (it would take the tokens of what is before it), and what is
        given up for its age."""
        for part in parts:
            if part.kind != REQUEST or part.paid:
                continue
            if part.deadline == 0 and not part.again:  # else it has passed before, and keeps its place
                if self.waits_behind(part):
                    part.unjudged = POSTPONED
                elif self.would_overtake(part):
                    part.unjudged = EXPIRED
            elif 0 < part.deadline <= now and self.may_expire(part):
                part.unjudged = EXPIRED

    def may_expire(self, part: Part) -> bool:
        """Whether `part`, which was paged, is given up when its `deadline` has come: `refuse` or `drop` settle it."""
        line = self.line_of(part)
        return line is not None and line.paged is not None and self.may_page(part)

    def end_wait(self, part: Part) -> None:
        """`part` goes on or is given up: it does not wait on disk any more, if it did."""
        disk = self.context.disk
        if disk is not None and part.held is not None:
            disk.waiting.end(part)

    def _pass_all(self, parts: list[Part]) -> None:
        for part in parts:
            self.pass_on(part)

    # ---- in and out ------------------------------------------------------------------------------------------------

    def cost_of(self, part: Part) -> int:
        """What a held part counts against the connection's budget, in bytes."""
        return part.end - part.start + self.overhead

    def _place(self, line: Line, part: Part, due: int) -> list[Part]:
        """Hold `part` behind the others of its line, or, where it was taken from there, in its old place. Returns what `settle` does."""
        if line.paged is not None:
            line.paged.waiting.begin(part)
        if line.taken:
            if (part.end - part.start) * 2 < len(part.data):  # copied when half of it is gone, not for each request
                part.copy_out()
            part.begin_hold().due = due
            line.returned = added(line.returned, part)
            return self.settle(line)
        part.copy_out()
        budget = self.budget
        budget.held_bytes += self.cost_of(part)
        if part.kind == REQUEST:
            self.count_messages(part, 1)
        if self._page(line, part):
            return []
        part.begin_hold().due = due
        line.parts.append(part)
        if len(line.parts) == 1:
            self.by_name = put(self.by_name, line.name, line)
            self.end_turn(line)
            self._set_due(line)
            self.update_due()
        return []

    def take_due(self, now: int, room: int) -> list[Part]:
        """Take held parts whose time has come, about `room` requests, in the order they must be judged and settled again.

        Settle them before anything decoded later. Raises ProtocolError where what was paged cannot be read back.
        """
        if self.damage:
            raise ProtocolError(self.damage, cause="spool_damaged")
        parts = [] if self.budget.frame_left else self.take_requests(now, room)
        self.update_due()
        return parts

    def take_requests(self, now: int, room: int, last: object = None) -> list[Part]:
        """Requests whose time has come, of all lines in turn, about `room`; of the line named `last` behind those of all others."""
        parts: list[Part] = []
        due = self._find_due(now, room)
        final = None if last is None else self.by_name.get(last)
        if final is not None and final in due:
            due.remove(final)
            due.append(final)
        served = 0
        for line in due:
            if room <= 0:
                break
            room = line.take(now, room, parts)
            served += 1
        for line in due[:served] if served < len(due) else ():  # there was no room for all: next time the others come first
            self.end_turn(line)
        for line in due:
            self._set_due(line)
        self.taken = len(parts)
        return parts

    def _find_due(self, now: int, most: int) -> list[Line]:
        """The lines whose time has come, in turn; of more than `most` the first of them, and one that finds no room.

        Where an answer frees one slot, ten thousand may be due that wait for it.
        """
        due: list[Line] = []
        due_queue = self.due_queue
        while due_queue.next_due <= now and len(due) <= most:
            line = due_queue.take()
            assert isinstance(line, Line)
            due.append(line)
        if len(due) <= most:
            due.sort(key=turn_of)
            return due
        for line in due:  # in the order in which they are due, which is no turn
            self._set_due(line)
        due = []
        for line in self.by_name.values():
            if line.due() <= now:
                due.append(line)
                if len(due) > most:
                    break
        return due

    def settle(self, line: Line) -> list[Part]:
        """One of the parts taken is settled. After the last: the parts that no longer wait for anything, to be passed on."""
        line.taken -= 1
        self.taken -= 1
        free: list[Part] = []
        if line.taken == 0:
            held = line.parts
            if line.returned:
                held[:0] = line.returned
                line.returned = NO_ITEMS
            while True:
                while held and (held[0].kind != REQUEST or held[0].paid):
                    part = held.pop(0)
                    self.count_out(part)
                    free.append(part)
                if line.paged is None or not self._refill(line):
                    break
            if not held and not line.pages():
                self.by_name.pop(line.name, None)
                line.paged = None
            self._set_due(line)
        if self.taken == 0:
            self.update_due()
        return free

    def end_turn(self, line: Line) -> None:
        """Something of `line` has gone on: next time the others come first, which may be due at the same moment."""
        self._last_turn += 1
        line.turn = self._last_turn
        if line.name in self.by_name:
            self.by_name[line.name] = self.by_name.pop(line.name)

    def make_due(self, line: Line) -> None:
        """The first held part of `line` waits for nothing any more."""
        line.parts[0].begin_hold().due = 1  # long past
        self._set_due(line)
        self.update_due()

    def count_split(self, part: Part) -> None:
        """`part` became two; where it was taken, both will be settled."""
        line = self.line_of(part)
        if line is not None and line.taken:
            line.taken += 1
            self.taken += 1
            self.budget.held_bytes += self.overhead

    def count_out(self, part: Part) -> None:
        """`part` is settled or given up: it no longer counts as held."""
        self.budget.held_bytes -= self.cost_of(part)
        self._unblock(part)
        if part.kind == REQUEST:
            self.count_messages(part, -1)
            self.end_wait(part)

    def count_messages(self, part: Part, sign: int) -> None:
        """`part`, a request, begins to be held (1), or ends (-1)."""
        self.budget.held_messages += sign * part.count * part.messages

    def _unblock(self, part: Part) -> None:
        held = part.held
        if held is not None and held.blocking:
            held.blocking = False
            self.budget.blocking -= 1

    def update_due(self) -> None:
        self.budget.next_due = self.next_due()

    def _set_due(self, line: Line) -> None:
        self.due_queue.set_due(line, line.due())

    def holds_close(self) -> bool:
        """Whether something held must still reach the broker although the client has finished sending."""
        return self.budget.held_messages > 0

    def first_waiting(self) -> Part | None:
        """One of the parts held by a rule (`Part.rule`), for operators; None where none is, or it is with the judge just now."""
        for line in self.by_name.values():
            if line.parts and line.parts[0].rule is not None:
                return line.parts[0]
        return None

    # ---- the disk --------------------------------------------------------------------------------------------------

    def _begin_paging(self, line: Line, part: Part) -> None:
        """What comes in `line` from now on is paged, if the connection pages, behind what is held there, by the rule of `part`."""
        disk = self.context.disk
        if disk is None:
            return
        self.has_paged = True
        if line.paged is None:
            ready = partial(self.take_paged, line)
            key_of = partial(self.key_of, line)
            line.paged = PagedQueue(disk, self.budget, self.context.connection, part.ordering_key, key_of, self.cost_of, ready)
            for held in line.parts:
                line.paged.waiting.begin(held)
        if part.rule is not None:
            line.paged.take_rule(part.rule)

    def follows_limits(self) -> bool:
        """Whether it is to hear of other limits by `limits_changed`."""
        return self.has_paged

    def limits_changed(self) -> None:
        """Other rules are in force: what has passed by those before, and still waits on disk or behind what does, is judged by these."""
        for line in self.by_name.values():
            if line.paged is not None:
                for held in (*line.returned, *line.parts):
                    held.forget_verdict()
                line.paged.forget_verdicts()

    def _page(self, line: Line, part: Part) -> bool:
        """Put `part` behind what is paged of the line, or begin that where enough waits in memory; whether it is there."""
        paged = line.paged
        if paged is None or not self.may_leave_memory(part):
            return False
        if paged.empty():
            if not line.parts:
                return False
            last = line.parts[-1]
            if last.kind == BODY and last.size > 0:  # it continues a frame, and those are not parted
                return False
            front = 0
            most = paged.disk.share()
            for held in line.parts:
                front += self.cost_of(held)
                if front >= most:
                    break
            if front < most:
                return False
        self._unblock(part)  # a file does not say so
        paged.add(part)
        if part.kind != REQUEST and self.is_answered(part):
            line.paged_answers = added(line.paged_answers, part)
        return True

    def _refill(self, line: Line) -> bool:
        """Take what is next of the line from the disk, if half of what was taken before is gone; whether anything was there."""
        paged = line.paged
        if paged is None or len(line.parts) > line.refill_at or paged.empty():
            return False
        parts = paged.take()
        for part in parts:
            if line.paged_answers and part.kind != REQUEST and self.is_answered(part):
                line.paged_answers.pop(0)
            line.parts.append(self.restore(part))
        if not parts:
            return False
        line.refill_at = len(line.parts) // 2
        paged.read_next()
        return True

    def take_paged(self, line: Line) -> None:
        """What is next of the line has been read from the disk, or is damaged."""
        paged = line.paged
        if paged is None:
            return
        if paged.damage:
            self.damage = self.damage or f"{self.describe(line)}: what waited on this gateway's disk cannot be read back: {paged.damage}"
            self.update_due()
        elif line.taken == 0 and not line.parts and self._refill(line):
            self.make_due(line)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def forget(self, line: Line) -> list[Part]:
        """Give up the held parts of `line`; what is away with the judge stays taken."""
        parts = line.forget_held()
        for part in parts:
            self.count_out(part)
        parts.extend(self._forget_paged(line))
        if line.taken == 0:
            self.by_name.pop(line.name, None)
        self._set_due(line)
        self.update_due()
        return parts

    def _forget_paged(self, line: Line) -> list[Part]:
        """Give up what waits on disk: its messages, and what is answered all the same."""
        paged = line.paged
        if paged is None:
            return []
        parts = paged.forget()
        line.paged = None
        for part in parts:
            self.budget.held_messages -= part.count
        parts.extend(line.paged_answers)
        line.paged_answers = NO_ITEMS
        return parts

    def forget_all(self) -> list[Part]:
        """Give up everything held."""
        parts: list[Part] = []
        for line in self.by_name.values():
            parts.extend(line.forget_held())
            parts.extend(self._forget_paged(line))
        for part in parts:
            self.end_wait(part)
        self.by_name.clear()
        self.due_queue.clear()
        self.taken = 0
        self.budget.held_bytes = 0
        self.budget.held_messages = 0
        self.budget.blocking = 1 if self.budget.held_back else 0
        self.budget.next_due = NEVER
        return parts

    def __repr__(self) -> str:
        return f"<Lines {list(self.by_name)} taken={self.taken}>"


def turn_of(line: Line) -> int:
    return line.turn
