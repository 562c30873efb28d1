"""The limiter's own executor: the judge runs off the I/O path.

One submission per sweep of the loop goes to a thread's bounded queue; when it is judged it goes to the list of done ones, and one write
to an eventfd wakes the loop, which collects them all. Writes are saved while the loop has not collected yet.

Three things can go wrong (`docs/design/limiter.md` 5). Each time the submission comes back, judged or passed:

* **The queue is full**: run-inline rejection. The submission is settled at once on the caller's thread: passed unlimited (`on_rejection`
  "pass"), as long as what passes like that is within its bound (`bypass.py`), or judged ("judge", and beyond the bound). A judge that is
  asked there may keep the caller waiting: that is the price of limits that hold.
* **The judge fails**: the request it failed on passes, and those behind it in the same slice; what was judged before keeps its verdict,
  the other slices of a long submission are judged, and the thread lives on. There is nothing to judge them with, and refusing everything
  would make a fault of the limiter an outage of the broker: so neither the bound nor `on_rejection` holds them back. They count as
  bypassed and towards the bound; the first failure is told, all are counted.
* **Closed**: as a full queue.

Each request that passed like that says so (`Request.bypassed`).

**Several threads.** The naive way gives a submission to any idle thread. Then one flood's batches stand in every queue, and those of all
sessions pass unjudged when it has filled them. So sessions are pinned: each belongs to one thread (`split`), whose queue only they can
fill. That also keeps the order within a session, whatever it has out at once (it has one batch, and one of deliveries). Threads do not
bring speed: one lock guards the buckets, and Python runs one thread at a time. A long submission is judged SLICE requests at a time, and in
between the others get their turn, the loop's thread included; so a submission behind another thread's flood waits for one slice. A request
of columns counts as those that it may be cut into (`weigh`), in a slice and in a queue.

**When the thread is not worth it.** Handing a submission over and back costs two switches between threads, 20 to 50 µs. A judge that
knows its keys takes less than a tenth of that for what one sweep brings of few topics. Where the sweep is of many topics the thread is
worth less still: the loop gives the GIL back with each call into the kernel, and both wait for it in turns. (32 connections that publish to
two topics in turn: 26,000 futex calls a second and a quarter more processor time.) So a judge that has been quick is **trusted**: asked on
the caller's thread, slice after slice, while no thread has anything to do and nobody has the judge's lock. What is left after
MAX_INLINE_NS goes to the thread. `n` is how many quick answers earn trust, MIN_QUICK_IN_ROW at first:

    state        event                                                          then
    untrusted    n submissions in a row were quick on the thread                trusted
    untrusted    one was slow                                                   counts from 0
    trusted      a slice is slow here, after at most LONG_TRUST_FACTOR * n      untrusted; n doubles, up to MAX_QUICK_IN_ROW (64)
                 submissions
    trusted      a slice is slow here, after more                               untrusted; n halves, down to MIN_QUICK_IN_ROW (8)

Who does not want that says `inline: never`: then every submission goes to a thread, and none is judged by the caller. What finds its queue
full and may not pass waits there all the same. That is bounded, too: a session has one batch of each way out, and is not read meanwhile.

A slow judge costs the caller one slice, never two. Why n changes: on a busy machine an answer is slow now and then only because the
processor was taken away, one in 300 at full load. Where trust was always dear, a quarter of all submissions went to the thread for it.
With several threads, what is longer than a slice goes to them from the beginning: a piece of it cannot be told whose it is.

Threads and counters: every counter has one writer, so none needs a lock; deques are atomic under the GIL.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from limiter.bypass import Bypass
from limiter.request import Request, UnjudgedError

if TYPE_CHECKING:
    from librt.threading import Lock

INLINE: Final = -1  # `fileno` of an executor without threads
MAX_INLINE_NS: Final = 1_000_000  # ns; what one submission may take on the caller's thread; a sweep waits so long for its verdicts
MIN_QUICK_IN_ROW: Final = 8  # quick answers in a row that earn trust, at first and at least; a guess
MAX_QUICK_IN_ROW: Final = 64  # the same after trust was lost again and again; a guess
LONG_TRUST_FACTOR: Final = 2  # trust was long when it outlasted so many times the answers that earned it; a guess
QUICK_NS: Final = 200_000  # ns; a slice judged within this is quick ...
QUICK_EACH_NS: Final = 1_000  # ns; ... or within this for each of its requests: of topics in turn each takes up to 0.8 µs
SLICE: Final = 512  # requests judged in a row; a tenth of Python's own interval between threads at most, and a session's whole turn

QUEUED: Final = 0  # `Submission.way`: judged on a thread
ON_LOOP: Final = 1  # judged on the caller's thread
PASSED: Final = 2  # not judged: the queue was full

TRUSTED: Final = "trusted"  # `inline`: a judge that has been quick is asked on the caller's thread
NEVER: Final = "never"  # the judge is asked on the executor's threads only
ALWAYS: Final = "always"  # there are no threads

clock_ns: Final = time.perf_counter_ns  # compiled code would look the name up each time


class Submission:
    """Requests to be judged together at `now` (monotonic ns), for `owner`, who finds them again by it.

    `mixed`: one of them may be of columns. Where none is, nothing has to be weighed.
    """

    __slots__ = ("failed", "judged", "mixed", "now", "owner", "queued", "quick", "requests", "unjudged", "way")

    def __init__(self, requests: list[Request], now: int, owner: object, mixed: bool = True) -> None:  # noqa: FBT001, FBT002
        self.requests = requests
        self.mixed = mixed
        self.now = now
        self.owner = owner
        self.way = QUEUED
        self.judged = 0  # requests that the judge has been asked for: always the first ones
        self.queued = 0  # weight of what was left when it came into a queue
        self.quick = True  # each slice until now was
        self.failed = False  # the judge did, on one of its slices
        self.unjudged = 0  # messages that passed without a verdict

    def count_left(self) -> int:
        """Requests that the judge has still to be asked for."""
        return len(self.requests) - self.judged

    def __repr__(self) -> str:
        return f"<Submission {len(self.requests)} requests>"


def weigh(request: Request) -> i64:
    """As how many requests `request` counts: columns may have to be cut, into one for each row."""
    columns = request.columns
    return 1 if columns is None else len(columns.rows)


def end_of_slice(submission: Submission, begin: i64) -> i64:
    """Where the slice from `begin` on ends: what weighs no more than SLICE, one request at least."""
    requests = submission.requests
    left: i64 = SLICE
    at: i64 = begin
    end: i64 = len(requests)
    if not submission.mixed:
        return min(begin + left, end)
    while at < end:
        left -= weigh(requests[at])
        if left < 0 and at > begin:
            break
        at += 1
    return at


def pass_unjudged(requests: list[Request]) -> int:
    """Let all of them pass without a verdict, and say so; how many messages that are."""
    messages = 0
    for request in requests:
        columns = request.columns
        if columns is not None and request.pieces is not None:
            messages += pass_unjudged(request.pieces[columns.judged :])
            continue
        request.passed = request.count
        request.wait_ns = 0
        request.rule = None
        request.shadow_refused = 0
        request.bypassed = request.key is not None or request.columns is not None  # a request without a limit was not bypassed
        if request.bypassed:
            messages += request.count * request.messages
    return messages


def limited_messages(requests: list[Request]) -> int:
    """How many messages `bypass` would let pass without a verdict."""
    messages = 0
    for request in requests:
        if request.key is not None or request.columns is not None:
            messages += request.count * request.messages
    return messages


class JudgeThread:
    """One thread with its queue. The loop writes `submitted`, the thread everything else."""

    __slots__ = ("failed", "queue", "submitted", "taken", "thread")

    def __init__(self) -> None:
        self.queue: SimpleQueue[Submission | None] = SimpleQueue()
        self.submitted = 0  # requests put into the queue, by weight
        self.taken = 0  # requests taken out of it, by weight
        self.failed = 0  # submissions on which the judge failed
        self.thread: threading.Thread | None = None

    @property
    def depth(self) -> int:
        """Requests in the queue, by weight; the submission being judged does not count."""
        return self.submitted - self.taken


class Executor:
    """Judges submissions on `threads` threads, each with a queue of at most `queue` requests; 0 threads: at once, in `submit`.

    A submission larger than the whole queue is taken when the queue is empty. `judge` is `Judge.decide` or alike. `on_error` is told the
    first exception of the judge, on the thread it happened on; all are counted. `lock` is taken while the judge would have to wait for
    somebody. `bound` is how much may pass where the queue is full; None: all. `split` cuts a submission into those of each thread's
    sessions, by its number (empty ones where it has none); more than one thread needs it. `inline` is TRUSTED or NEVER. Only the loop's
    thread calls the methods. Raises ValueError for settings that contradict each other.
    """

    def __init__(
        self,
        judge: Callable[[list[Request], int], None],
        threads: int = 1,
        queue: int = 10_000,
        on_rejection: str = "pass",
        on_error: Callable[[BaseException], None] | None = None,
        lock: Lock | None = None,
        bound: Bypass | None = None,
        split: Callable[[Submission, int], list[Submission]] | None = None,
        inline: str = TRUSTED,
    ) -> None:
        if threads < 0 or queue < 1:
            raise ValueError(f"limiter {{threads: {threads}, queue: {queue}}}: threads must be at least 0 and queue at least 1")
        if on_rejection not in {"pass", "judge"}:
            raise ValueError(f"on_rejection: {on_rejection!r} is unknown; known: pass, judge")
        if threads > 1 and split is None:
            raise ValueError(f"limiter {{threads: {threads}}}: more than one needs to know whose requests are whose; give it `split`")
        if threads == 0 and inline == NEVER:
            raise ValueError("limiter {threads: 0, inline: never}: without threads there is only the caller's")
        self._judge = judge
        self._limit = queue
        self._judges_rejected = on_rejection == "judge"
        self._on_error = on_error
        self._lock = lock
        self._bound = bound
        self._split = split
        self._may_trust = True
        self.take_inline(inline)
        self.judged_inline = 0  # submissions judged on the caller's thread because the judge is trusted
        self._error_reported = threading.Lock()  # taken for good by the first exception
        self._settled: list[Submission] = []  # those that never were with a thread
        self._done: deque[Submission] = deque()  # by threads
        self._woken = False  # the eventfd was written and not collected since
        self._closed = False
        self._out = 0  # submissions with a thread, or done by one and not collected
        self._quick_in_row = 0  # quick answers of threads in a row, as collected
        self._quick_needed = MIN_QUICK_IN_ROW  # so many for the judge to be trusted: n in the table above
        self._trusted_for = 0  # submissions judged here since it was trusted
        self.rejected = 0  # submissions that found their queue full and did not wait there
        self._failed_inline = 0
        self._fd = INLINE if threads == 0 else os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._workers = [JudgeThread() for _ in range(threads)]
        for number, worker in enumerate(self._workers):
            worker.thread = threading.Thread(target=self._work, args=(worker,), name=f"sluice-limiter-{number}", daemon=True)
            worker.thread.start()

    def fileno(self) -> int:
        """The eventfd, readable when something is done; INLINE (-1) without threads: everything is done when `submit` returns."""
        return self._fd

    def take_inline(self, inline: str) -> None:
        """TRUSTED or NEVER, for the next submission. Without threads it changes nothing. Raises ValueError."""
        if inline not in {TRUSTED, NEVER}:
            raise ValueError(f"inline: {inline!r} is unknown; known: trusted, never")
        self._may_trust = inline == TRUSTED

    @property
    def inline_mode(self) -> str:
        """Where judging may happen: TRUSTED, NEVER or, without threads, ALWAYS."""
        if not self._workers:
            return ALWAYS
        return TRUSTED if self._may_trust else NEVER

    @property
    def depth(self) -> int:
        """Requests in all queues, by weight."""
        return sum(worker.depth for worker in self._workers)

    @property
    def failed(self) -> int:
        """Submissions on which the judge failed."""
        return self._failed_inline + sum(worker.failed for worker in self._workers)

    def submit(self, submission: Submission) -> bool:
        """Have `submission` judged; it comes back by `collect`, perhaps in pieces. Never waits for a thread.

        True: something is done already, without a word from the eventfd.
        """
        workers = self._workers
        if not workers:
            self._run_inline(submission)
            return True
        bound = self._bound
        if bound is not None and submission.now >= bound.due:
            bound.look(submission.now)
        is_short = len(workers) == 1 or end_of_slice(submission, 0) == len(submission.requests)
        if is_short and self._trusted() and self._run_trusted(submission):
            return True
        split = self._split
        if split is None or len(workers) == 1:
            return self._hand_over(submission, workers[0])
        done = False
        for number, piece in enumerate(split(submission, len(workers))):
            if piece.requests and self._hand_over(piece, workers[number]):
                done = True
        return done

    def _hand_over(self, submission: Submission, worker: JudgeThread) -> bool:
        """Put what is left of it into the worker's queue; True where that is full, and it is settled."""
        size = submission.count_left()
        if submission.mixed:
            for request in submission.requests[submission.judged :]:
                size += weigh(request) - 1
        depth = worker.depth
        if self._closed or (depth > 0 and depth + size > self._limit):
            if not self._judges_rejected and self._may_pass(submission):
                self.rejected += 1
                submission.way = PASSED
                submission.unjudged += pass_unjudged(submission.requests[submission.judged :])
                self._settled.append(submission)
                return True
            if self._may_trust or self._closed:  # closed, there is no thread to wait for
                self.rejected += 1
                self._run_inline(submission)
                return True
        self._out += 1
        submission.queued = size
        worker.submitted += size
        worker.queue.put(submission)
        return False

    def _may_pass(self, submission: Submission) -> bool:
        bound = self._bound
        return bound is None or bound.take(limited_messages(submission.requests[submission.judged :]), submission.now)

    def _trusted(self) -> bool:
        """Whether the judge may be asked on the caller's thread now."""
        if self._out or self._quick_in_row < self._quick_needed or self._closed or not self._may_trust:
            return False
        lock = self._lock
        return lock is None or not lock.locked()

    def _run_trusted(self, submission: Submission) -> bool:
        """Judge it here while that is quick; False where a part of it is left for the thread."""
        kept = self._judge_slice(submission)
        asked = len(submission.requests)
        while submission.judged < asked and submission.quick and kept < MAX_INLINE_NS:
            kept += self._judge_slice(submission)
        self._trusted_for += 1
        if not submission.quick:
            was_long = self._trusted_for > LONG_TRUST_FACTOR * self._quick_needed
            self._quick_needed = (
                max(MIN_QUICK_IN_ROW, self._quick_needed // 2) if was_long else min(MAX_QUICK_IN_ROW, self._quick_needed * 2)
            )
            self._quick_in_row = 0
            self._trusted_for = 0
        if submission.judged < asked:
            return False
        self.judged_inline += 1
        self._settle_inline(submission)
        return True

    def collect(self) -> list[Submission]:
        """Take all submissions that are done: the threads' in the order in which they were, then the caller's own."""
        if self._woken and self._fd >= 0:
            try:  # noqa: SIM105  -- contextlib.suppress costs more than the system call
                os.eventfd_read(self._fd)
            except BlockingIOError:
                pass  # a thread is about to write: one wake-up for nothing
            self._woken = False  # after the read, or a write in between would be lost; before the list is emptied
        settled = self._settled
        self._settled = []
        found = settled
        if self._out:
            found = []
            done = self._done
            while done:
                submission = done.popleft()
                self._out -= 1
                if submission.quick:
                    self._quick_in_row += 1
                else:
                    self._quick_in_row = 0
                    self._trusted_for = 0
                found.append(submission)
            found += settled
        for submission in found:
            if submission.unjudged and submission.way != PASSED and self._bound is not None:
                self._bound.add(submission.unjudged)
        return found

    def close(self, deadline_s: float = 1.0) -> bool:
        """Judge what is queued, end the threads, give the eventfd back; False where one did not end in time (it dies with the process).

        `collect` still returns what was judged. May be called again.
        """
        if not self._closed:
            self._closed = True
            for worker in self._workers:
                worker.queue.put(None)
        end = time.monotonic() + deadline_s
        for worker in self._workers:
            assert worker.thread is not None
            worker.thread.join(max(0.0, end - time.monotonic()))
        ended = not any(worker.thread is not None and worker.thread.is_alive() for worker in self._workers)
        if ended and self._fd >= 0:  # a late thread would write to a stranger's descriptor: then it stays open
            os.close(self._fd)
            self._fd = INLINE
        return ended

    def _run_inline(self, submission: Submission) -> None:
        asked = len(submission.requests)
        while submission.judged < asked:
            self._judge_slice(submission)
        self._settle_inline(submission)

    def _settle_inline(self, submission: Submission) -> None:
        submission.way = ON_LOOP
        if submission.failed:
            self._failed_inline += 1
        self._settled.append(submission)

    def _work(self, worker: JudgeThread) -> None:
        while True:
            submission = worker.queue.get()
            if submission is None:
                return
            worker.taken += submission.queued
            while submission.count_left():
                self._judge_slice(submission)
                if submission.count_left():
                    time.sleep(0)  # the other threads' turn: compiled code lets go of the GIL only where it waits
            if submission.failed:
                worker.failed += 1
            self._done.append(submission)
            del submission  # an idle thread keeps no batch alive
            self._wake()

    def _judge_slice(self, submission: Submission) -> int:
        """Judge its next slice, or pass the requests the judge fails on; how long that took.

        Never raises: a thread that dies would stall its queue for ever.
        """
        requests = submission.requests
        if len(requests) > 1:
            begin = submission.judged
            end: int = end_of_slice(submission, begin)
            if end - begin < len(requests):
                requests = requests[begin:end]
        submission.judged += len(requests)
        started = clock_ns()
        try:
            self._judge(requests, submission.now)
        except BaseException as error:
            judged = 0
            cause: BaseException = error
            if isinstance(error, UnjudgedError):
                judged = error.at  # those were charged, and hold what they have taken: their verdict stands
                cause = error.__cause__ or error
            submission.failed = True
            submission.unjudged += pass_unjudged(requests[judged:])
            if self._on_error is not None and self._error_reported.acquire(blocking=False):
                with contextlib.suppress(Exception):  # telling is a courtesy; the failure itself is counted
                    self._on_error(cause)
        took = clock_ns() - started
        if took > QUICK_NS:
            asked = len(requests)
            for request in requests:
                columns = request.columns
                if request.pieces is not None:
                    asked += len(request.pieces)
                elif columns is not None:
                    asked += len(columns.sums)
            if took > QUICK_EACH_NS * asked:
                submission.quick = False
        return took

    def _wake(self) -> None:
        if not self._woken and self._fd >= 0:
            self._woken = True
            os.eventfd_write(self._fd, 1)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Executor {state} threads={len(self._workers)} depth={self.depth} rejected={self.rejected} failed={self.failed}>"
