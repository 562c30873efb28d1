"""The executor: slow judges, full queues and exceptions stall, reorder and lose nothing. No sleeps: judges wait for the test's word."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from librt.threading import Lock

from limiter.bypass import Bypass, BypassBound
from limiter.columns import Columns
from limiter.executor import (
    ALWAYS,
    INLINE,
    MAX_INLINE_NS,
    MIN_QUICK_IN_ROW,
    NEVER,
    ON_LOOP,
    PASSED,
    QUEUED,
    QUICK_EACH_NS,
    QUICK_NS,
    SLICE,
    TRUSTED,
    Executor,
    Submission,
)
from limiter.keys import Key, Origin
from limiter.limits import SECOND
from limiter.request import Request, UnjudgedError
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic
from support.cases import in_one_loop

PATIENCE_S = 10.0  # a test that waits longer has failed


def key() -> Key:
    return Key(Origin("rocketmq", Sender("l", "10.0.0.1", None), b"/"), rocketmq_topic(b"t"), None, "produce")


def submission(owner: int, requests: int = 1) -> Submission:
    return Submission([Request(key(), 3, 1, 10) for _ in range(requests)], 1000 + owner, owner)


def mixed(messages: int, keys: int = 3) -> Request:
    """Messages of several keys in turn, asked for together."""
    request = Request(None, messages, 1, 0)
    request.columns = Columns()
    of = [key() for _ in range(keys)]
    for number in range(messages):
        request.columns.add(of[number % keys], 1, 10)
    request.columns.close()
    return request


class SlowJudge:
    """A judge that works when it is told to; writes down in which order it was asked."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.started = threading.Semaphore(0)
        self.asked: list[int] = []

    def __call__(self, requests: list[Request], now: int) -> None:
        self.started.release()
        assert self.go.wait(PATIENCE_S)
        self.asked.append(now)
        for request in requests:
            request.passed = 1


def refuse(requests: list[Request], now: int) -> None:
    for request in requests:
        request.passed = 0


def fail(requests: list[Request], now: int) -> None:
    requests[0].passed = 1
    requests[0].wait_ns = 77
    raise RuntimeError("injected")


def collect(executor: Executor, count: int) -> list[Submission]:
    """Wait on the eventfd, as the loop does, until `count` submissions are done."""
    found: list[Submission] = []
    poll = select.poll()
    poll.register(executor.fileno(), select.POLLIN)
    while len(found) < count:
        assert poll.poll(PATIENCE_S * 1000), f"stalled with {len(found)} of {count}"
        found += executor.collect()
    return found


@pytest.fixture
def slow() -> Iterator[SlowJudge]:
    judge = SlowJudge()
    yield judge
    judge.go.set()


def test_all_come_back_judged_and_in_order() -> None:
    executor = Executor(refuse)
    for owner in range(200):
        executor.submit(submission(owner))
    done = collect(executor, 200)
    assert [one.owner for one in done] == list(range(200))
    assert all(one.requests[0].passed == 0 and not one.requests[0].bypassed for one in done)
    assert executor.close(PATIENCE_S)
    assert (executor.rejected, executor.failed, executor.depth) == (0, 0, 0)


def test_a_slow_judge_stalls_nobody_and_a_full_queue_passes(slow: SlowJudge) -> None:
    executor = Executor(slow, threads=1, queue=3)
    executor.submit(submission(0))
    assert slow.started.acquire(timeout=PATIENCE_S)  # it is being judged: the queue is empty
    for owner in range(1, 4):
        executor.submit(submission(owner))
    assert executor.depth == 3
    assert executor.submit(submission(4))  # done at once, while the judge still stands
    assert executor.submit(submission(5))
    bypassed = executor.collect()
    assert [(one.owner, one.requests[0].passed, one.requests[0].bypassed) for one in bypassed] == [(4, 3, True), (5, 3, True)]
    assert executor.rejected == 2
    slow.go.set()
    judged = collect(executor, 4)
    assert [(one.owner, one.requests[0].passed, one.requests[0].bypassed) for one in judged] == [(n, 1, False) for n in range(4)]
    assert slow.asked == [1000, 1001, 1002, 1003]
    executor.submit(submission(6))
    assert collect(executor, 1)[0].requests[0].bypassed is False  # there is room again
    assert executor.close(PATIENCE_S)


def test_a_full_queue_may_be_judged_inline(slow: SlowJudge) -> None:
    calls: list[str] = []

    def judge(requests: list[Request], now: int) -> None:
        calls.append(threading.current_thread().name)
        if threading.current_thread() is threading.main_thread():
            refuse(requests, now)
        else:
            slow(requests, now)

    executor = Executor(judge, threads=1, queue=1, on_rejection="judge")
    executor.submit(submission(0))
    assert slow.started.acquire(timeout=PATIENCE_S)
    executor.submit(submission(1))
    assert executor.submit(submission(2))
    (inline,) = executor.collect()
    assert (inline.owner, inline.requests[0].passed, inline.requests[0].bypassed) == (2, 0, False)
    slow.go.set()
    assert [one.owner for one in collect(executor, 2)] == [0, 1]
    assert calls[0] == "sluice-limiter-0"
    assert executor.close(PATIENCE_S)


def test_the_queue_is_counted_in_requests_and_takes_a_large_one_when_empty(slow: SlowJudge) -> None:
    executor = Executor(slow, threads=1, queue=10)
    executor.submit(submission(0))
    assert slow.started.acquire(timeout=PATIENCE_S)
    executor.submit(submission(1, requests=50))
    assert (executor.depth, executor.rejected) == (50, 0)
    executor.submit(submission(2))
    assert executor.rejected == 1
    slow.go.set()
    assert {one.owner for one in collect(executor, 3)} == {0, 1, 2}
    assert executor.close(PATIENCE_S)


def test_what_is_mixed_counts_in_the_queue_as_what_it_may_be_cut_into(slow: SlowJudge) -> None:
    executor = Executor(slow, threads=1, queue=10)
    executor.submit(submission(0))
    assert slow.started.acquire(timeout=PATIENCE_S)
    executor.submit(Submission([Request(key(), 3, 1, 10), mixed(6)], 1001, 1))
    assert (executor.depth, executor.rejected) == (7, 0)
    assert executor.submit(Submission([mixed(4)], 1002, 2)), "no room for four more"
    assert not executor.submit(Submission([mixed(3)], 1003, 3))
    assert (executor.depth, executor.rejected) == (10, 1)
    slow.go.set()
    assert {one.owner for one in collect(executor, 4)} == {0, 1, 2, 3}
    assert executor.close(PATIENCE_S)
    assert executor.depth == 0


def test_an_exception_passes_the_traffic_and_the_thread_lives_on() -> None:
    told: list[BaseException] = []
    executor = Executor(fail, on_error=told.append)
    for owner in range(5):
        executor.submit(submission(owner, requests=2))
    for one in collect(executor, 5):
        assert [(request.passed, request.bypassed, request.wait_ns, request.rule) for request in one.requests] == [(3, True, 0, None)] * 2
    assert executor.failed == 5
    assert [str(error) for error in told] == ["injected"]  # the first is told, all are counted
    assert executor.close(PATIENCE_S)


def test_an_exception_in_telling_is_harmless() -> None:
    def tell(error: BaseException) -> None:
        raise OSError("log is gone")

    executor = Executor(fail, on_error=tell)
    executor.submit(submission(0))
    assert collect(executor, 1)[0].requests[0].bypassed
    assert executor.close(PATIENCE_S)


def test_unlimited_requests_do_not_count_as_bypassed() -> None:
    executor = Executor(fail, threads=0)
    executor.submit(Submission([Request(None, 5, 0, 0), Request(key(), 5, 1, 0)], 0, None))
    (one,) = executor.collect()
    assert [(request.passed, request.bypassed) for request in one.requests] == [(5, False), (5, True)]


def test_without_threads_everything_is_done_when_submit_returns() -> None:
    names: list[str] = []

    def judge(requests: list[Request], now: int) -> None:
        names.append(threading.current_thread().name)

    executor = Executor(judge, threads=0)
    assert executor.fileno() == INLINE
    executor.submit(submission(0))
    executor.submit(submission(1))
    assert [one.owner for one in executor.collect()] == [0, 1]
    assert executor.collect() == []
    assert names == [threading.current_thread().name] * 2
    assert executor.close()


def by_owner(submission: Submission, threads: int) -> list[Submission]:
    """Whose requests they are: the owner lists numbers, one per request; each belongs to the thread of its number."""
    owners = submission.owner
    assert isinstance(owners, list)
    pieces = [Submission([], submission.now, []) for _ in range(threads)]
    for owner, request in zip(owners, submission.requests, strict=True):
        piece = pieces[owner % threads]
        piece.requests.append(request)
        assert isinstance(piece.owner, list)
        piece.owner.append(owner)
    return pieces


def of(*owners: int) -> Submission:
    return Submission([Request(key(), 3, 1, 10) for _ in owners], 1000, list(owners))


def owners_of(done: list[Submission]) -> list[object]:
    return sorted((one.owner for one in done), key=str)


def test_several_threads_have_sessions_of_their_own_and_one_flood_fills_one_queue(slow: SlowJudge) -> None:
    executor = Executor(slow, threads=2, queue=2, split=by_owner)
    assert not executor.submit(of(2, 3, 4))
    assert slow.started.acquire(timeout=PATIENCE_S)
    assert slow.started.acquire(timeout=PATIENCE_S)  # each thread has its part: nobody waits behind the other's
    assert not executor.submit(of(2, 4))  # thread 0's queue is full now
    assert executor.submit(of(6, 7)), "6 is turned away and done at once, 7 is queued"
    (rejected_after_drain,) = executor.collect()
    assert (rejected_after_drain.owner, rejected_after_drain.unjudged, rejected_after_drain.way) == ([6], 3, PASSED)
    assert (executor.rejected, executor.depth) == (1, 3)
    slow.go.set()
    assert owners_of(collect(executor, 4)) == [[2, 4], [2, 4], [3], [7]]
    assert executor.close(PATIENCE_S)


def test_a_session_keeps_its_order_however_many_threads_there_are() -> None:
    seen: dict[str, list[int]] = {}

    def judge(requests: list[Request], now: int) -> None:
        for request in requests:
            seen.setdefault(threading.current_thread().name, []).append(request.size)

    executor = Executor(judge, threads=3, split=by_owner)
    numbers = [n % 7 for n in range(600)]
    for at in range(0, 600, 6):
        owners = numbers[at : at + 6]
        executor.submit(Submission([Request(key(), 1, 1, at + n) for n in range(6)], 1000, owners))
    assert executor.close(PATIENCE_S)
    executor.collect()
    assert sum(map(len, seen.values())) == 600
    for owner in range(7):
        own = {at for at, number in enumerate(numbers) if number == owner}
        kept = [[at for at in asked if at in own] for asked in seen.values()]
        assert [asked for asked in kept if asked] == [sorted(own)], "one thread, in order"


def test_several_threads_need_a_split_of_requests_by_session() -> None:
    with pytest.raises(ValueError, match=r"threads: 2.*split"):
        Executor(refuse, threads=2)


def test_a_long_submission_is_judged_in_slices_and_what_the_judge_fails_on_passes_alone() -> None:
    sizes: list[int] = []

    def judge(requests: list[Request], now: int) -> None:
        sizes.append(len(requests))
        if len(sizes) == 2:
            raise RuntimeError("injected")
        refuse(requests, now)

    executor = Executor(judge)
    executor.submit(submission(0, 2 * SLICE + 7))
    (one,) = collect(executor, 1)
    assert sizes == [SLICE, SLICE, 7]
    assert [request.bypassed for request in one.requests] == [False] * SLICE + [True] * SLICE + [False] * 7
    assert [request.passed for request in one.requests] == [0] * SLICE + [3] * SLICE + [0] * 7
    assert (one.unjudged, one.way, executor.failed) == (3 * SLICE, QUEUED, 1)
    assert executor.close(PATIENCE_S)


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_a_slice_is_no_longer_for_what_is_mixed(threads: int) -> None:
    """Where none of it fits, all of it is cut, and judged while others wait."""
    weights = [200, 200, 112, 1, 512, 1, 700, 300, 213, 5]
    slices: list[list[int]] = []

    def judge(requests: list[Request], now: int) -> None:
        slices.append([1 if request.columns is None else len(request.columns.rows) for request in requests])

    requests = [mixed(weight) if weight > 1 else Request(key(), 9, 1, 10) for weight in weights]
    one = Submission(requests, 1000, [0] * len(requests))
    executor = Executor(judge, threads, split=by_owner)
    (back,) = executor.collect() if executor.submit(one) else collect(executor, 1)
    assert slices == [[200, 200, 112], [1], [512], [1], [700], [300], [213, 5]]
    assert all(request is other for request, other in zip(back.requests, requests, strict=True))
    assert (back.judged, executor.depth) == (len(requests), 0)
    assert executor.close(PATIENCE_S)


def test_nothing_is_weighed_where_nothing_is_mixed() -> None:
    sizes: list[int] = []
    one = Submission([mixed(200) for _ in range(SLICE + 5)], 1000, 0, mixed=False)
    executor = Executor(lambda requests, _: sizes.append(len(requests)), threads=0)
    executor.submit(one)
    assert sizes == [SLICE, 5]


@pytest.mark.parametrize("threads", [0, 1])
def test_what_was_judged_before_the_request_on_which_the_judge_fails_keeps_its_verdict(threads: int) -> None:
    slices: list[int] = []

    def judge(requests: list[Request], now: int) -> None:
        slices.append(len(requests))
        refuse(requests[:5], now)
        if len(slices) == 2:
            raise UnjudgedError(5) from RuntimeError("injected")
        refuse(requests, now)

    told: list[BaseException] = []
    executor = Executor(judge, threads, on_error=told.append)
    (one,) = executor.collect() if executor.submit(submission(0, 2 * SLICE)) else collect(executor, 1)
    assert [request.passed for request in one.requests] == [0] * (SLICE + 5) + [3] * (SLICE - 5)
    assert [request.bypassed for request in one.requests] == [False] * (SLICE + 5) + [True] * (SLICE - 5)
    assert (one.unjudged, executor.failed, [str(error) for error in told]) == (3 * (SLICE - 5), 1, ["injected"])
    assert executor.close(PATIENCE_S)


# ---- how much may bypass -----------------------------------------------------------------------------------------------


class Counted:
    """A judge that refuses everything, counts the messages it judged, and stands still on its own threads until told to go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.started = threading.Semaphore(0)
        self.judged = 0
        self.inline = 0

    def __call__(self, requests: list[Request], now: int) -> None:
        if threading.current_thread() is threading.main_thread():
            self.inline += 1
        else:
            self.started.release()
            assert self.go.wait(PATIENCE_S)
        refuse(requests, now)
        self.judged += sum(request.count * request.messages for request in requests)


def test_beyond_its_share_of_the_last_seconds_nothing_passes_unjudged() -> None:
    """10 % of 10 s: 120 were judged, so 3 and 3 and 3 and 3 may pass (12 of 132), and the next batch is judged on the loop."""
    judge = Counted()
    judge.go.set()
    executor = Executor(judge, queue=1, bound=Bypass(BypassBound(100_000, 10 * SECOND), lambda: judge.judged))
    executor.submit(Submission([Request(key(), 120, 1, 10)], 5 * SECOND, 0))
    collect(executor, 1)
    assert judge.started.acquire(timeout=PATIENCE_S)
    judge.go.clear()
    executor.submit(Submission([Request(key(), 1, 1, 10)], 6 * SECOND, 1))
    assert judge.started.acquire(timeout=PATIENCE_S)
    executor.submit(Submission([Request(key(), 1, 1, 10)], 6 * SECOND, 2))  # the queue is full
    ways = []
    for owner in range(6):
        assert executor.submit(Submission([Request(key(), 3, 1, 10)], 7 * SECOND, owner))
        (one,) = executor.collect()
        ways.append((one.way, one.requests[0].passed, one.requests[0].bypassed))
    assert ways == [(PASSED, 3, True)] * 4 + [(ON_LOOP, 0, False)] * 2
    assert (executor.rejected, judge.inline) == (6, 2)
    judge.go.set()
    collect(executor, 2)
    assert executor.close(PATIENCE_S)


def test_requests_that_a_failing_judge_lets_pass_count_towards_the_share_and_are_never_held_back() -> None:
    bound = Bypass(BypassBound(0, 10 * SECOND), lambda: 0)
    executor = Executor(fail, bound=bound, on_rejection="judge")
    for owner in range(3):
        executor.submit(submission(owner))
    assert [one.unjudged for one in collect(executor, 3)] == [3, 3, 3]
    assert bound.passed == 9
    assert executor.close(PATIENCE_S)


@in_one_loop
@pytest.mark.parametrize("inline", [TRUSTED, NEVER])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threads", [1, 3])
def test_whatever_goes_wrong_every_request_comes_back_once_and_each_session_goes_on(threads: int, seed: int, inline: str) -> None:
    """Sessions with one batch out at a time, small queues, a judge that fails and takes its time, a bound that is often reached."""
    random = Random(seed)
    judged = [0]

    def judge(requests: list[Request], now: int) -> None:
        if now % 7 == 0:
            raise RuntimeError("injected")
        if now % 5 == 0:
            time.sleep(0.0002)
        refuse(requests, now)
        judged[0] += 3 * len(requests)

    bound = Bypass(BypassBound(500_000, SECOND), lambda: judged[0])
    executor = Executor(judge, threads, queue=4, bound=bound, split=by_owner, on_rejection="pass", inline=inline)
    back = dict.fromkeys(range(8), 0)
    out: dict[int, list[Request]] = {}
    now = 0

    def take(done: list[Submission]) -> None:
        for one in done:
            assert isinstance(one.owner, list)
            for owner, request in zip(one.owner, one.requests, strict=True):
                expected = out[owner].pop(0)
                assert request is expected, "in the session's order"
                assert request.passed == (3 if request.bypassed else 0)
                if not out[owner]:
                    del out[owner]
                    back[owner] += 1

    while min(back.values()) < 20:
        now += 1
        idle = [owner for owner in back if owner not in out]
        owners = [owner for owner in random.sample(idle, random.randint(0, len(idle))) for _ in range(random.randint(1, 3))]
        if owners:
            made = Submission([Request(key(), 3, 1, 10) for _ in owners], now * SECOND // 100 + now, owners)
            for owner, request in zip(owners, made.requests, strict=True):
                out.setdefault(owner, []).append(request)
            if executor.submit(made):
                take(executor.collect())
        elif out:
            take(collect(executor, 1))
    assert executor.close(PATIENCE_S)
    take(executor.collect())
    assert (out, executor.depth) == ({}, 0)
    assert bound.passed > 0


def test_every_submission_comes_back_once_and_says_the_way_it_went(slow: SlowJudge) -> None:
    executor = Executor(slow, queue=1)
    executor.submit(submission(0))
    assert slow.started.acquire(timeout=PATIENCE_S)
    executor.submit(submission(1))
    executor.submit(submission(2))
    slow.go.set()
    found = executor.collect()
    found += collect(executor, 3 - len(found))
    assert sorted((one.way, one.unjudged) for one in found) == [(QUEUED, 0), (QUEUED, 0), (PASSED, 3)]
    assert executor.close(PATIENCE_S)


def test_one_wake_up_for_everything_that_is_done(slow: SlowJudge) -> None:
    executor = Executor(slow)
    for owner in range(10):
        executor.submit(submission(owner))
    slow.go.set()
    assert executor.close(PATIENCE_S)
    assert [one.owner for one in executor.collect()] == list(range(10))


def test_close_judges_what_is_queued_and_later_submissions_pass(slow: SlowJudge) -> None:
    executor = Executor(slow)
    executor.submit(submission(0))
    executor.submit(submission(1))
    assert executor.close(0.01) is False  # the judge still stands: its thread is left to itself
    slow.go.set()
    assert executor.close(PATIENCE_S)
    executor.submit(submission(2))
    assert [(one.owner, one.requests[0].bypassed) for one in executor.collect()] == [(0, False), (1, False), (2, True)]


def test_threads_are_daemons_with_names() -> None:
    executor = Executor(refuse, threads=2, split=by_owner)
    threads = {thread.name: thread.daemon for thread in threading.enumerate() if thread.name.startswith("sluice-limiter")}
    assert threads == {"sluice-limiter-0": True, "sluice-limiter-1": True}
    assert repr(executor) == "<Executor open threads=2 depth=0 rejected=0 failed=0>"
    assert executor.close(PATIENCE_S)


@pytest.mark.parametrize(
    "wrong", [{"threads": -1}, {"queue": 0}, {"on_rejection": "drop"}, {"inline": "sometimes"}, {"threads": 0, "inline": "never"}]
)
def test_invalid_settings_make_no_executor(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"threads|on_rejection|inline"):
        Executor(refuse, **wrong)  # type: ignore[arg-type]


class Counting:
    """A judge that notes which thread asked it, and is slow when told to."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.asked: list[Request] = []
        self.slow_for_ns = 0
        self.slow_from = 0  # this slice of a submission on

    def __call__(self, requests: list[Request], now: int) -> None:
        self.threads.append(threading.current_thread().name)
        self.asked += requests
        end = time.perf_counter_ns() + (self.slow_for_ns if len(self.threads) > self.slow_from else 0)
        while time.perf_counter_ns() < end:
            pass


def ask(executor: Executor, times: int, requests: int = 1) -> None:
    """One after the other, as a loop with one session would."""
    for owner in range(times):
        if not executor.submit(submission(owner, requests)):
            collect(executor, 1)
        else:
            assert len(executor.collect()) == 1


def test_a_quick_judge_earns_the_callers_thread() -> None:
    judge = Counting()
    executor = Executor(judge)
    ask(executor, MIN_QUICK_IN_ROW)
    assert set(judge.threads) == {"sluice-limiter-0"}
    while executor.judged_inline == 0:
        ask(executor, 1)
    assert judge.threads[-1] == threading.current_thread().name
    assert executor.close(PATIENCE_S)


def trusted(judge: Counting, **settings: Any) -> Executor:
    """An executor that asks `judge` on the caller's thread by now."""
    executor = Executor(judge, **settings)
    while not executor._trusted():  # a pause of the machine within a quick answer takes trust away again
        ask(executor, 1)
    judge.threads.clear()
    judge.asked.clear()
    return executor


def ask_long(executor: Executor, judge: Counting, slices: int) -> Submission:
    """One submission of so many slices, judged once each and in order; how it came back."""
    long = submission(0, slices * SLICE)
    (back,) = executor.collect() if executor.submit(long) else collect(executor, 1)
    assert back is long
    assert len(judge.threads) == slices
    assert all(one is other for one, other in zip(judge.asked, long.requests, strict=True))
    assert executor.close(PATIENCE_S)
    return back


def test_a_long_submission_is_judged_on_the_callers_thread_slice_by_slice_while_that_is_quick() -> None:
    """Unlike requests take longer than those of a run: a slice of them may, without being slow."""
    judge = Counting()
    executor = trusted(judge)
    judge.slow_for_ns = QUICK_NS + QUICK_EACH_NS * SLICE // 16  # too long for one request, not for so many
    assert ask_long(executor, judge, 2).way in {ON_LOOP, QUEUED}, "the latter where the machine took the processor away"
    assert judge.threads[0] == threading.current_thread().name


def test_a_judge_is_not_slow_for_the_keys_of_what_is_mixed() -> None:
    """Each of its sums is looked at, though nothing is cut."""
    judge = Counting()
    judge.slow_for_ns = QUICK_NS + QUICK_EACH_NS * SLICE // 16
    executor = Executor(judge, threads=0)
    quick = False
    while not quick:  # where the machine takes the processor away it is not, now and then
        one = Submission([mixed(SLICE // 2, keys=SLICE // 2), mixed(SLICE // 2, keys=SLICE // 2)], 1000, 0)
        executor.submit(one)
        quick = one.quick
        assert len(judge.threads) < 1000
    assert one.requests[0].pieces is None


def test_one_slow_slice_is_all_the_caller_gets_and_the_thread_does_the_rest() -> None:
    judge = Counting()
    executor = trusted(judge)
    judge.slow_for_ns = 2 * QUICK_EACH_NS * SLICE
    assert ask_long(executor, judge, 4).way == QUEUED
    assert judge.threads == [threading.current_thread().name] + ["sluice-limiter-0"] * 3


def test_the_caller_is_not_kept_for_all_that_a_flood_brings() -> None:
    judge = Counting()
    executor = trusted(judge)
    each = QUICK_EACH_NS * SLICE * 3 // 4  # quick
    judge.slow_for_ns = each
    assert ask_long(executor, judge, 12).way == QUEUED
    here = judge.threads.count(threading.current_thread().name)
    assert 1 <= here <= MAX_INLINE_NS // each + 1
    assert judge.threads[here:] == ["sluice-limiter-0"] * (12 - here)


def test_a_submission_that_the_judge_fails_on_in_several_slices_counts_as_failed_once() -> None:
    class Failing(Counting):
        def __call__(self, requests: list[Request], now: int) -> None:
            super().__call__(requests, now)
            if len(requests) == SLICE:
                raise RuntimeError("injected")

    judge = Failing()
    executor = trusted(judge)
    judge.slow_from = 1
    judge.slow_for_ns = 2 * QUICK_EACH_NS * SLICE
    back = ask_long(executor, judge, 4)
    assert (back.unjudged, executor.failed) == (4 * SLICE * 3, 1)
    here = judge.threads.count(threading.current_thread().name)  # one where the processor was taken away during the first slice
    assert here in (1, 2)
    assert judge.threads[here:] == ["sluice-limiter-0"] * (4 - here)


@pytest.mark.parametrize("long", ["many", "mixed"])
def test_several_threads_are_given_what_is_long_from_its_beginning(long: str) -> None:
    """And what is no longer than a slice while they have nothing to do is judged by the caller."""
    judge = Counting()
    executor = Executor(judge, threads=2, split=by_owner)
    size = 2
    while size <= SLICE:
        executor.submit(Submission([Request(key(), 1, 1, 10) for _ in range(size)], 1000, list(range(size))))
        if not (settled := executor.collect()):
            collect(executor, 2)
        elif settled[0].way == ON_LOOP:
            judge.threads.clear()
            size *= 16
    requests = [mixed(SLICE), mixed(2)] if long == "mixed" else [Request(key(), 1, 1, 10) for _ in range(size)]
    executor.submit(Submission(requests, 1000, list(range(len(requests)))))
    collect(executor, 2)
    assert set(judge.threads) == {"sluice-limiter-0", "sluice-limiter-1"}
    assert executor.close(PATIENCE_S)


def test_a_judge_that_becomes_slow_costs_the_caller_one_answer_and_has_to_earn_it_again() -> None:
    judge = Counting()
    executor = trusted(judge)
    judge.slow_for_ns = 2 * QUICK_NS
    ask(executor, 10)
    assert judge.threads.count(threading.current_thread().name) == 1
    assert judge.threads[1:] == ["sluice-limiter-0"] * 9
    assert executor.close(PATIENCE_S)


def on_callers_thread(every: int, answers: int) -> int:
    """How many of `answers` a judge gives on the caller's thread that is slow each `every`-th time."""
    judge = Counting()
    executor = Executor(judge)
    for number in range(answers):
        judge.slow_for_ns = 2 * QUICK_NS if number % every == 0 else 0
        ask(executor, 1)
    assert executor.close(PATIENCE_S)
    return judge.threads.count(threading.current_thread().name)


def test_an_answer_that_is_slow_now_and_then_does_not_send_the_next_ones_to_the_thread() -> None:
    assert on_callers_thread(50, 2000) > 200, "some 1,600 on a machine of one's own; none, were trust as dear as at most"


def test_a_judge_that_is_slow_again_and_again_stays_on_its_thread() -> None:
    assert on_callers_thread(MIN_QUICK_IN_ROW + 3, 1000) < 50


def test_trust_that_ended_on_the_thread_is_counted_anew() -> None:
    judge = Counting()
    lock = Lock()
    executor = Executor(judge, lock=lock)
    ask(executor, 20 * MIN_QUICK_IN_ROW)
    judge.slow_for_ns = 2 * QUICK_NS
    lock.acquire()
    ask(executor, 1)
    lock.release()
    for _ in range(6):  # each time trusted, then at once slow: dearer and dearer
        judge.slow_for_ns = 0
        while judge.threads[-1] != threading.current_thread().name:
            ask(executor, 1)
        judge.slow_for_ns = 2 * QUICK_NS
        ask(executor, 1)
    judge.slow_for_ns = 0
    judge.threads.clear()
    ask(executor, 32)
    assert set(judge.threads) == {"sluice-limiter-0"}
    assert executor.close(PATIENCE_S)


def test_a_judge_that_is_slow_from_the_start_never_gets_the_callers_thread() -> None:
    judge = Counting()
    judge.slow_for_ns = 2 * QUICK_NS
    executor = Executor(judge)
    ask(executor, 3 * MIN_QUICK_IN_ROW)
    assert set(judge.threads) == {"sluice-limiter-0"}
    assert executor.close(PATIENCE_S)


def test_a_busy_judge_is_not_asked_on_the_callers_thread() -> None:
    lock = Lock()
    judge = Counting()
    executor = Executor(judge, lock=lock)
    ask(executor, 20 * MIN_QUICK_IN_ROW)
    lock.acquire()
    judge.threads.clear()
    ask(executor, 3)
    assert set(judge.threads) == {"sluice-limiter-0"}
    assert executor.close(PATIENCE_S)


# ---- inline: never -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("requests", [1, 3 * SLICE])
def test_with_never_the_callers_thread_judges_nothing_however_quick_the_judge_is(requests: int) -> None:
    judge = Counting()
    executor = Executor(judge, inline=NEVER)
    made = [submission(owner, requests) for owner in range(20 * MIN_QUICK_IN_ROW)]
    back = []
    for one in made:
        assert not executor.submit(one), "nothing is done when it returns"
        back += collect(executor, 1)
    assert back == made
    assert set(judge.threads) == {"sluice-limiter-0"}
    assert {one.way for one in back} == {QUEUED}
    assert all(one is other for one, other in zip(judge.asked, (each for one in made for each in one.requests), strict=True)), "in order"
    assert (executor.judged_inline, executor.rejected, executor.inline_mode) == (0, 0, NEVER)
    assert executor.close(PATIENCE_S)


@pytest.mark.parametrize("settings", [{"on_rejection": "judge"}, {"bound": Bypass(BypassBound(0, SECOND), lambda: 0)}])
def test_with_never_what_finds_the_queue_full_and_may_not_pass_waits_there(slow: SlowJudge, settings: dict[str, Any]) -> None:
    executor = Executor(slow, threads=1, queue=1, inline=NEVER, **settings)
    executor.submit(submission(0))
    assert slow.started.acquire(timeout=PATIENCE_S)
    for owner in range(1, 6):
        assert not executor.submit(submission(owner)), "the caller is not kept"
    assert (executor.collect(), executor.depth, executor.rejected) == ([], 5, 0), "what is queued is not turned away"
    slow.go.set()
    back = collect(executor, 6)
    assert [(one.owner, one.way, one.unjudged) for one in back] == [(owner, QUEUED, 0) for owner in range(6)]
    assert slow.asked == [1000 + owner for owner in range(6)]
    assert executor.close(PATIENCE_S)


def test_with_never_a_full_queue_passes_within_the_bound_as_ever(slow: SlowJudge) -> None:
    executor = Executor(slow, threads=1, queue=1, inline=NEVER)
    executor.submit(submission(0))
    assert slow.started.acquire(timeout=PATIENCE_S)
    executor.submit(submission(1))
    assert executor.submit(submission(2))
    assert [(one.owner, one.way) for one in executor.collect()] == [(2, PASSED)]
    slow.go.set()
    collect(executor, 2)
    assert executor.close(PATIENCE_S)


def test_the_mode_is_changed_while_it_runs() -> None:
    judge = Counting()
    executor = trusted(judge)
    assert executor.inline_mode == TRUSTED
    executor.take_inline(NEVER)
    ask(executor, 3 * MIN_QUICK_IN_ROW)
    assert set(judge.threads) == {"sluice-limiter-0"}
    executor.take_inline(TRUSTED)
    while judge.threads[-1] != threading.current_thread().name:
        ask(executor, 1)
    assert executor.close(PATIENCE_S)


def test_without_threads_there_is_nowhere_else() -> None:
    executor = Executor(refuse, threads=0)
    executor.take_inline(NEVER)  # as a reload does where `threads` needs a restart
    assert executor.submit(submission(0))
    assert (executor.inline_mode, executor.collect()[0].way) == (ALWAYS, ON_LOOP)
