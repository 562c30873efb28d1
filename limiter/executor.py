"""The limiter's own executor: the judge runs off the I/O path.

One submission per sweep of the loop goes to one thread's bounded queue; when it is judged it goes to the list of done ones, and one write
to an eventfd wakes the loop, which collects them all. Writes are saved while the loop has not collected yet.

What can go wrong, and what happens then (`limiter.md` 5). Whatever it is, a submission always comes back, judged or passed:

* **The queue is full**: run-inline rejection. The submission is settled at once on the caller's thread: passed unlimited (`on_rejection`
  "pass"), or judged ("judge").
* **The judge fails**: the submission's requests pass, and the thread lives on.
* **Closed**: as a full queue.

What passed like that says so (`Request.bypassed`). Order: a session has at most one batch out, so submissions may overtake each other
without harm, and within one nothing is ever reordered.

**When the thread is not worth it.** Handing a submission over and back costs two switches between threads, 20 to 50 µs; a judge that
knows its keys takes less than a tenth of that for what one sweep brings. So a judge that has been quick for TRUSTED_AFTER submissions in a
row is asked on the caller's thread for submissions of at most INLINE_REQUESTS, as long as no thread has anything to do and the judge is
not `busy`. One slow answer, and it has to earn that again on its own thread: a slow judge costs the caller one answer, never two.

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
from typing import Final

from limiter.request import Request

INLINE: Final = -1  # `fileno` of an executor without threads
INLINE_REQUESTS: Final = 128  # 40 to 100 ns each: what the caller's thread may be kept for (measured 2026-11)
TRUSTED_AFTER: Final = 64  # quick answers in a row (a guess)
QUICK_NS: Final = 200_000  # an answer within this was quick; more than that for 128 requests means that something is in its way


class Submission:
    """Requests to be judged together at `now` (monotonic ns), for `owner`, who finds them again by it."""

    __slots__ = ("now", "owner", "requests")

    def __init__(self, requests: list[Request], now: int, owner: object) -> None:
        self.requests = requests
        self.now = now
        self.owner = owner

    def __repr__(self) -> str:
        return f"<Submission {len(self.requests)} requests>"


def bypass(requests: list[Request]) -> None:
    """Let all of them pass without a verdict, and say so."""
    for request in requests:
        request.passed = request.count
        request.wait_ns = 0
        request.rule = None
        request.shadow_refused = 0
        request.bypassed = request.key is not None  # what nobody limits was not bypassed


class Worker:
    """One thread with its queue. The loop writes `submitted`, the thread everything else."""

    __slots__ = ("failed", "finished", "queue", "quick", "submitted", "taken", "thread")

    def __init__(self) -> None:
        self.queue: SimpleQueue[Submission | None] = SimpleQueue()
        self.submitted = 0  # requests put into the queue
        self.taken = 0  # requests taken out of it
        self.finished = 0  # requests judged
        self.failed = 0  # submissions on which the judge failed
        self.quick = 0  # answers in a row within QUICK_NS
        self.thread: threading.Thread | None = None

    @property
    def depth(self) -> int:
        """Requests in the queue; the submission being judged does not count."""
        return self.submitted - self.taken


class Executor:
    """Judges submissions on `threads` threads, each with a queue of at most `queue` requests; 0 threads: at once, in `submit`.

    A submission larger than the whole queue is taken when the queue is empty. `judge` is `Judge.decide` or alike. `on_error` is told the
    first exception of the judge, on the thread it happened on; all are counted. `busy` says whether the judge would have to wait now (for a
    lock). Only one thread, the loop's, may call the methods.
    """

    def __init__(
        self,
        judge: Callable[[list[Request], int], None],
        threads: int = 1,
        queue: int = 10_000,
        on_rejection: str = "pass",
        on_error: Callable[[BaseException], None] | None = None,
        busy: Callable[[], bool] | None = None,
    ) -> None:
        if threads < 0 or queue < 1:
            raise ValueError(f"limiter {{threads: {threads}, queue: {queue}}}: threads must be at least 0 and queue at least 1")
        if on_rejection not in {"pass", "judge"}:
            raise ValueError(f"on_rejection: {on_rejection!r} is unknown; known: pass, judge")
        self._judge = judge
        self._limit = queue
        self._judges_rejected = on_rejection == "judge"
        self._on_error = on_error
        self._busy = busy
        self.inline = 0  # submissions judged on the caller's thread because the judge is trusted
        self._told = threading.Lock()  # taken for good by the first exception
        self._done: deque[Submission] = deque()
        self._woken = False  # the eventfd was written and not collected since
        self._closed = False
        self._next = 0  # worker that is asked first, in turns
        self.rejected = 0  # submissions
        self._failed_inline = 0
        self._fd = INLINE if threads == 0 else os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._workers = [Worker() for _ in range(threads)]
        for number, worker in enumerate(self._workers):
            worker.thread = threading.Thread(target=self._work, args=(worker,), name=f"sluice-limiter-{number}", daemon=True)
            worker.thread.start()

    def fileno(self) -> int:
        """The eventfd, readable when something is done; INLINE (-1) without threads: everything is done when `submit` returns."""
        return self._fd

    @property
    def depth(self) -> int:
        """Requests in all queues."""
        return sum(worker.depth for worker in self._workers)

    @property
    def failed(self) -> int:
        """Submissions on which the judge failed."""
        return self._failed_inline + sum(worker.failed for worker in self._workers)

    def submit(self, submission: Submission) -> bool:
        """Have `submission` judged; it comes back by `collect`. Never waits. True: it is done already, without a word from the eventfd."""
        if not self._workers:
            self._run_inline(submission)
            return True
        worker = self._least_loaded()
        size = len(submission.requests)
        if size <= INLINE_REQUESTS and self._trusts(worker):
            self._run_trusted(submission, worker)
            return True
        depth = worker.depth
        if self._closed or (depth > 0 and depth + size > self._limit):
            self.rejected += 1
            if self._judges_rejected:
                self._run_inline(submission)
            else:
                bypass(submission.requests)
                self._done.append(submission)
            return True
        worker.submitted += size
        worker.queue.put(submission)
        return False

    def _trusts(self, worker: Worker) -> bool:
        """Whether the judge may be asked on the caller's thread now."""
        if worker.quick < TRUSTED_AFTER or worker.submitted != worker.finished or self._closed:
            return False
        return self._busy is None or not self._busy()

    def _run_trusted(self, submission: Submission, worker: Worker) -> None:
        started = time.perf_counter_ns()
        self._run_inline(submission)
        self.inline += 1
        if time.perf_counter_ns() - started > QUICK_NS:
            worker.quick = 0

    def collect(self) -> list[Submission]:
        """Take all submissions that are done, in the order in which they were."""
        if self._woken and self._fd >= 0:
            try:  # noqa: SIM105  -- contextlib.suppress costs more than the system call
                os.eventfd_read(self._fd)
            except BlockingIOError:
                pass  # a thread is about to write: one wake-up for nothing
            self._woken = False  # after the read, or a write in between would be lost; before the list is emptied
        done = self._done
        found = []
        while done:
            found.append(done.popleft())
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

    def _least_loaded(self) -> Worker:
        """The worker with the fewest requests queued; among equals the one whose turn it is."""
        workers = self._workers
        if len(workers) == 1:
            return workers[0]
        self._next = (self._next + 1) % len(workers)
        in_turn = workers[self._next :] + workers[: self._next]
        return min(in_turn, key=lambda worker: worker.depth)

    def _run_inline(self, submission: Submission) -> None:
        if not self._judged(submission):
            self._failed_inline += 1
        self._done.append(submission)

    def _work(self, worker: Worker) -> None:
        while True:
            submission = worker.queue.get()
            if submission is None:
                return
            size = len(submission.requests)
            worker.taken += size
            started = time.perf_counter_ns()
            if not self._judged(submission):
                worker.failed += 1
            worker.quick = worker.quick + 1 if time.perf_counter_ns() - started <= QUICK_NS else 0
            self._done.append(submission)
            worker.finished += size
            del submission  # an idle thread keeps no batch alive
            self._wake()

    def _judged(self, submission: Submission) -> bool:
        """Judge it, or pass it where the judge fails. Never raises: a thread that dies would stall its queue for ever."""
        try:
            self._judge(submission.requests, submission.now)
        except BaseException as error:
            bypass(submission.requests)
            if self._on_error is not None and self._told.acquire(blocking=False):
                with contextlib.suppress(Exception):  # telling is a courtesy; the failure itself is counted
                    self._on_error(error)
            return False
        return True

    def _wake(self) -> None:
        if not self._woken and self._fd >= 0:
            self._woken = True
            os.eventfd_write(self._fd, 1)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Executor {state} threads={len(self._workers)} depth={self.depth} rejected={self.rejected} failed={self.failed}>"
