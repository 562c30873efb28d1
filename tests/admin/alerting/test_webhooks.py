"""Receivers of alerts: told what changes, tried again while they are away, never waited for, changed by a reload, told at the end."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from admin.alerting import hook as hooks
from admin.alerting import webhooks as hub
from admin.alerting.alerts import AlertSender
from admin.alerting.hook import FAILED, MAX_PAUSE_S, OK, REJECTED, Hook, api_url
from admin.alerting.webhooks import FINISH_S, MAX_FIRING, Webhooks
from common.views.limits import OverLimitView
from config import Settings, load
from support.overruns import GATEWAY, SINCE, overrun
from support.processes import LOOPBACK, free_ports
from support.receivers import Dripper, Receiver
from support.tls import Authority

SENDER = AlertSender(GATEWAY, "http://127.0.0.1:9180/")
LISTENERS = f"gateway: {{name: {GATEWAY}}}\nlisteners:\n  - {{name: one, protocol: amqp, bind: 127.0.0.1:0, upstream: 127.0.0.1:1}}\n"
SECRET = "s3cret-of-the-tests"


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Settings]:
    """Settings with these webhooks, each a line of YAML."""

    def made(*webhooks: str) -> Settings:
        file = tmp_path / "sluice.yaml"
        file.write_text(LISTENERS + "webhooks:\n" + "".join(f"  - {{{each}}}\n" for each in webhooks) if webhooks else LISTENERS)
        return load(file)

    return made


@pytest.fixture
def hook_of(configured: Callable[..., Settings]) -> Callable[[str], Hook]:
    """One receiver of a firing alert of the topic a."""

    def made(webhook: str) -> Hook:
        webhooks = Webhooks(configured(webhook), list)
        webhooks.take([overrun("a")], SINCE)
        (hook,) = webhooks._hooks
        return hook

    return made


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[str, dict[str, Any]]]]:
    monkeypatch.setattr(logging.getLogger("sluice"), "propagate", True)
    caplog.set_level(logging.INFO, logger="sluice")
    return lambda: [(record.getMessage(), record.fields) for record in caplog.records]  # type: ignore[attr-defined]


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():
            await trio.sleep(0.01)


@asynccontextmanager
async def running(webhooks: Webhooks) -> AsyncIterator[trio.Event]:
    """Until the event is set, or the end of the `with`."""
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(webhooks.run, stopping)
        yield stopping
        stopping.set()


# ---- one receiver ------------------------------------------------------------------------------------------------------


async def test_a_post_is_json_with_the_token_of_the_file(hook_of: Callable[[str], Hook], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    with Receiver() as receiver:
        hook = hook_of(f"url: {receiver.url}, token_file: token, name: ops")
        assert await hook.attempt() == OK
        (posted,) = receiver.posted
        assert posted.path == "/hook"
        assert posted.fields["authorization"] == f"Bearer {SECRET}"
        assert posted.fields["content-type"] == "application/json"
        assert posted.fields["host"] == receiver.url.split("/")[2]
        assert posted.body["receiver"] == "ops"
        assert receiver.states() == [("a", "firing")]
        assert not hook.pending
        assert hook.results == {OK: 1, FAILED: 0, REJECTED: 0}


async def test_a_user_is_sent_with_the_password_of_the_file(hook_of: Callable[[str], Hook], tmp_path: Path) -> None:
    (tmp_path / "password").write_text("two words")
    with Receiver() as receiver:
        assert await hook_of(f"url: {receiver.url}, token_file: password, user: sluice").attempt() == OK
        assert receiver.posted[0].fields["authorization"] == "Basic c2x1aWNlOnR3byB3b3Jkcw=="


@pytest.mark.parametrize("content", ["", " \n", "two words", "a\nX-Evil: b", "\x00", "x" * 20_000])
async def test_a_file_without_a_token_is_a_failure_that_shows_nothing_of_it(
    hook_of: Callable[[str], Hook], tmp_path: Path, content: str, said: Callable[[], list[tuple[str, dict[str, Any]]]]
) -> None:
    (tmp_path / "token").write_text(content)
    with Receiver() as receiver:
        hook = hook_of(f"url: {receiver.url}, token_file: token")
        assert await hook.attempt() == FAILED
        assert receiver.posted == []
        (tmp_path / "token").write_text(SECRET)
        assert await hook.attempt() == OK
    assert [event for event, _ in said()] == ["webhook_failed", "webhook_recovered"]
    assert not content.strip() or content not in str(said())


async def test_a_url_in_a_file_is_read_at_each_post_and_shown_nowhere(
    hook_of: Callable[[str], Hook], tmp_path: Path, said: Callable[[], list[tuple[str, dict[str, Any]]]]
) -> None:
    with Receiver() as receiver, Receiver() as other:
        hook = hook_of("url_file: hook.url, name: ops")
        contents = [
            "",
            "ftp://a/x",
            f"http://u:{SECRET}@a/",
            f"{receiver.url}/{SECRET}\nhttp://a/",
            f"{other.url}/{SECRET}#x",
            "x" * 20_000,
        ]
        for content in contents:
            (tmp_path / "hook.url").write_text(content)
            assert await hook.attempt() == FAILED
        assert (receiver.posted, other.posted) == ([], [])
        for to, path in ((receiver, f"/services/{SECRET}?token={SECRET}"), (other, "/")):
            (tmp_path / "hook.url").write_text(f"{to.url}{path}\n")
            assert await hook.attempt() == OK
            assert [post.path for post in to.posted] == [f"/hook{path}"]
            hook.pending.repeat(hook.firing)
        other.status, other.answer = 400, f"no hook {SECRET}".encode()
        assert await hook.attempt() == REJECTED
    assert [event for event, _ in said()] == ["webhook_failed", "webhook_recovered", "webhook_rejected"]
    assert SECRET not in str(said())


@pytest.mark.parametrize("key", ["url_file", "token_file"])
async def test_a_fifo_or_a_folder_in_place_of_a_file_holds_up_nothing(hook_of: Callable[[str], Hook], tmp_path: Path, key: str) -> None:
    with Receiver() as receiver:
        hook = hook_of("url_file: held, name: ops" if key == "url_file" else f"url: {receiver.url}, token_file: held, name: ops")
        os.mkfifo(tmp_path / "held")
        assert await hook.attempt() == FAILED
        (tmp_path / "held").unlink()
        (tmp_path / "held").mkdir()
        assert await hook.attempt() == FAILED
        (tmp_path / "held").rmdir()
        (tmp_path / "held").write_text(receiver.url)
        assert await hook.attempt() == OK


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_an_overloaded_receiver_is_tried_again(hook_of: Callable[[str], Hook], status: int) -> None:
    with Receiver() as receiver:
        receiver.statuses = [status, status]
        hook = hook_of(f"url: {receiver.url}")
        assert [await hook.attempt(), await hook.attempt()] == [FAILED, FAILED]
        assert len(hook.pending) == 1
        assert await hook.attempt() == OK
        assert not hook.pending


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(301, "redirects are not followed"), (307, "redirects are not followed"), (400, "own log"), (401, "token_file"), (404, "path of url")],
)
async def test_what_a_receiver_refuses_is_not_sent_again_and_said_once(
    hook_of: Callable[[str], Hook], status: int, remedy: str, said: Callable[[], list[tuple[str, dict[str, Any]]]]
) -> None:
    with Receiver() as receiver, Receiver() as elsewhere:
        receiver.status, receiver.fields, receiver.answer = status, {"Location": elsewhere.url}, b"no\n\tway" + b" x" * 100_000
        hook = hook_of(f"url: {receiver.url}")
        for _ in range(3):
            assert await hook.attempt() == REJECTED
            assert not hook.pending
            hook.pending.repeat(hook.firing)
        assert elsewhere.posted == []
        receiver.status = 200
        assert await hook.attempt() == OK
    (rejected, fields), (recovered, _) = said()
    assert (rejected, recovered) == ("webhook_rejected", "webhook_recovered")
    assert fields["err"].startswith(f"it answers {status}: no way x x")
    assert len(fields["err"]) < 300
    assert remedy in fields["remedy"]


async def test_a_receiver_that_repeats_the_token_does_not_bring_it_into_the_log(
    hook_of: Callable[[str], Hook], tmp_path: Path, said: Callable[[], list[tuple[str, dict[str, Any]]]]
) -> None:
    (tmp_path / "token").write_text(SECRET)
    with Receiver() as receiver:
        receiver.answer = f"bad token {SECRET}".encode()
        hook = hook_of(f"url: {receiver.url}, token_file: token")
        receiver.statuses = [500, 401]
        assert [await hook.attempt(), await hook.attempt()] == [FAILED, REJECTED]
    assert len(said()) == 2
    assert SECRET not in str(said())


async def test_a_receiver_that_is_not_there_is_said_once_and_tried_with_growing_pauses(
    hook_of: Callable[[str], Hook], said: Callable[[], list[tuple[str, dict[str, Any]]]]
) -> None:
    hook = hook_of(f"url: http://{LOOPBACK}:{free_ports(1)[0]}/services/T0/B0/path-as-good-as-a-token")
    pauses = []
    for _ in range(9):
        assert await hook.attempt() == FAILED
        pauses.append(hook.pause_s())
    assert pauses == [1, 2, 4, 8, 16, 32, MAX_PAUSE_S, MAX_PAUSE_S, MAX_PAUSE_S]
    ((event, fields),) = said()
    assert (event, fields["alerts"]) == ("webhook_failed", 1)
    assert fields["err"].endswith("Connection refused")
    assert "as-good-as-a-token" not in str(said())


async def test_a_mute_receiver_costs_a_time_out(hook_of: Callable[[str], Hook]) -> None:
    with Receiver() as receiver:
        receiver.mute.set()
        hook = hook_of(f"url: {receiver.url}, timeout: 200ms")
        started = trio.current_time()
        assert await hook.attempt() == FAILED
        assert trio.current_time() - started >= 0.2
        receiver.mute.clear()
        assert await hook.attempt() == OK


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 503 Busy\r\nContent-Length: 9999999\r\n\r\n"])
async def test_an_answer_that_drips_without_end_ends_with_the_time_out(hook_of: Callable[[str], Hook], sent: bytes) -> None:
    with Dripper(sent) as dripper:
        assert await hook_of(f"url: {dripper.url}, timeout: 300ms").attempt() == FAILED
        await until(dripper.closed.is_set)


@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n"])
async def test_a_post_is_taken_when_the_answer_says_so_whatever_its_body(hook_of: Callable[[str], Hook], sent: bytes) -> None:
    """A receiver that kept the connection open was posted the same again and again, and each was taken."""
    with Dripper(sent) as dripper:
        assert await hook_of(f"url: {dripper.url}, timeout: 60s").attempt() == OK


async def test_what_does_not_speak_http_is_a_failure(
    hook_of: Callable[[str], Hook], said: Callable[[], list[tuple[str, dict[str, Any]]]]
) -> None:
    with Dripper(b"SSH-2.0-OpenSSH_9.2\r\n\r\n") as dripper:
        assert await hook_of(f"url: {dripper.url}").attempt() == FAILED
    assert "not HTTP" in said()[0][1]["err"]


async def test_tls_is_verified_by_the_ca_and_by_the_name(
    hook_of: Callable[[str], Hook], tmp_path: Path, said: Callable[[], list[tuple[str, dict[str, Any]]]]
) -> None:
    authority = Authority(tmp_path / "tls")
    Authority(tmp_path / "other")
    good, wrong = authority.issue("good", LOOPBACK), authority.issue("wrong", "other.example")
    for (certificate, key), ca, result in (
        (good, "tls/ca.pem", OK), (good, "other/ca.pem", FAILED), (wrong, "tls/ca.pem", FAILED), (good, None, FAILED),
    ):  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        with Receiver(context=context) as receiver:
            assert await hook_of(f"url: {receiver.url}" + (f", ca: {ca}" if ca else "")).attempt() == result
            assert len(receiver.posted) == (result == OK)
    assert all("not trusted" in fields["err"] for _, fields in said())
    assert len(said()) == 3


async def test_alertmanager_is_told_at_its_own_path(hook_of: Callable[[str], Hook]) -> None:
    with Receiver() as receiver:
        hook = hook_of(f"url: {receiver.url}, format: alertmanager")
        before = time.time()
        assert await hook.attempt() == OK
        (posted,) = receiver.posted
        assert posted.path == "/hook/api/v2/alerts"
        assert [alert["labels"]["thing"] for alert in posted.body] == ["a"]
        assert posted.body[0]["endsAt"] > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before + 200))


def test_alertmanagers_path_is_added_once() -> None:
    assert api_url("http://a:9093") == api_url("http://a:9093/") == api_url("http://a:9093/api/v2/alerts") == "http://a:9093/api/v2/alerts"
    assert api_url("http://a/prefix/") == "http://a/prefix/api/v2/alerts"


# ---- all receivers -----------------------------------------------------------------------------------------------------


async def test_what_is_over_is_told_and_then_its_recovery(configured: Callable[..., Settings]) -> None:
    over = [overrun("a"), overrun("b")]
    with Receiver() as receiver:
        async with running(Webhooks(configured(f"url: {receiver.url}"), lambda: over)):
            await until(lambda: ("b", "firing") in receiver.states())
            del over[0]
            await until(lambda: ("a", "resolved") in receiver.states())
            assert receiver.taken()[-1]["status"] == "firing"
            over.clear()
            await until(lambda: receiver.taken()[-1]["status"] == "resolved")
        posts = receiver.taken()
    assert receiver.states().index(("a", "firing")) < receiver.states().index(("a", "resolved"))
    assert ("b", "resolved") in receiver.states()
    assert len(posts) <= 4  # a repeated look tells nothing


async def test_posts_to_one_receiver_are_a_second_apart(
    configured: Callable[..., Settings], autojump_clock: trio.testing.MockClock
) -> None:
    webhooks = Webhooks(configured("url: http://receiver.example"), list)
    times: list[float] = []

    async def attempt() -> str:
        times.append(trio.current_time())
        hook.pending.told(hook.pending.batch(hook.firing))
        return OK

    (hook,) = webhooks._hooks
    hook.attempt = attempt  # type: ignore[method-assign]
    async with running(webhooks):
        for number in range(40):
            webhooks.take([overrun(str(number))], SINCE)
            await trio.sleep(0.1)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert 4 <= len(times) <= 6
    assert min(gaps[:-1]) >= 1.0  # the last is told while the gateway stops


@pytest.mark.parametrize(("more", "repeat_s"), [("", 4 * 3600), (", format: alertmanager", 60), (", repeat_every: 30s", 30)])
async def test_what_fires_is_told_again_in_its_time(
    configured: Callable[..., Settings],
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    more: str,
    repeat_s: float,
) -> None:
    monkeypatch.setattr(hub, "LOOK_S", repeat_s / 20)
    webhooks = Webhooks(configured(f"url: http://receiver.example{more}"), lambda: [overrun("a")])
    times: list[float] = []

    async def attempt() -> str:
        times.append(trio.current_time())
        hook.pending.told(hook.pending.batch(hook.firing))
        return OK

    (hook,) = webhooks._hooks
    hook.attempt = attempt  # type: ignore[method-assign]
    async with running(webhooks):
        while len(times) < 4:
            await trio.sleep(repeat_s / 10)
    assert times[2] - times[1] == times[3] - times[2] == pytest.approx(repeat_s)


async def test_a_receiver_that_is_away_keeps_no_other_from_its_alerts(configured: Callable[..., Settings]) -> None:
    with Receiver() as mute, Receiver() as receiver:
        mute.mute.set()
        async with running(Webhooks(configured(f"url: {mute.url}", f"url: {receiver.url}"), lambda: [overrun("a")])):
            await until(lambda: receiver.states() == [("a", "firing")])


async def test_the_end_resolves_what_fires_within_its_time(configured: Callable[..., Settings]) -> None:
    with Receiver() as receiver, Receiver() as mute:
        webhooks = Webhooks(configured(f"url: {receiver.url}", f"url: {mute.url}, timeout: 1min"), lambda: [overrun("a")])
        async with running(webhooks) as stopping:
            await until(lambda: bool(receiver.taken()) and bool(mute.taken()))
            mute.mute.set()
            stopped = trio.current_time()
            stopping.set()
            await until(lambda: ("a", "resolved") in receiver.states())
        assert trio.current_time() - stopped >= FINISH_S  # the mute one was waited for, so long and no longer
        last = receiver.taken()[-1]
    assert last["status"] == "resolved"
    assert "The gateway has stopped" in last["alerts"][0]["annotations"]["description"]


async def test_the_end_is_told_though_the_tasks_are_cancelled_at_once(configured: Callable[..., Settings]) -> None:
    with Receiver() as receiver:
        stopping = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Webhooks(configured(f"url: {receiver.url}"), lambda: [overrun("a")]).run, stopping)
            await until(lambda: bool(receiver.taken()))
            stopping.set()
            nursery.cancel_scope.cancel()
        assert receiver.states() == [("a", "firing"), ("a", "resolved")]


async def test_the_end_without_anything_to_tell_takes_no_time(configured: Callable[..., Settings]) -> None:
    async with running(Webhooks(configured(f"url: http://{LOOPBACK}:{free_ports(1)[0]}"), list)):
        await trio.testing.wait_all_tasks_blocked()
        stopped = trio.current_time()
    assert trio.current_time() - stopped < FINISH_S


def test_alerts_are_bounded(configured: Callable[..., Settings]) -> None:
    webhooks = Webhooks(configured("url: http://a"), list)
    for turn in range(3):
        webhooks.take([overrun(f"{turn}-{number}") for number in range(MAX_FIRING + 500)], SINCE)
        assert len(webhooks._firing) == MAX_FIRING
    (hook,) = webhooks._hooks
    assert len(hook.pending) <= 2 * MAX_FIRING


async def test_a_fault_in_a_look_ends_that_look_only(
    configured: Callable[..., Settings], said: Callable[[], list[tuple[str, dict[str, Any]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "LOOK_S", 0.02)
    looks = []

    def look() -> list[OverLimitView]:
        looks.append(1)
        if len(looks) == 1:
            raise ValueError("a fault")
        return [overrun("a")]

    with Receiver() as receiver:
        async with running(Webhooks(configured(f"url: {receiver.url}"), look)):
            await until(lambda: bool(receiver.taken()))
    assert [event for event, _ in said()] == ["housekeeping_failed"]


# ---- a reload ------------------------------------------------------------------------------------------------------------


async def test_a_reload_tells_a_new_receiver_what_fires_and_an_old_one_nothing_twice(configured: Callable[..., Settings]) -> None:
    with Receiver() as old, Receiver() as new:
        webhooks = Webhooks(configured(f"url: {old.url}"), lambda: [overrun("a")])
        async with running(webhooks):
            await until(lambda: bool(old.taken()))
            webhooks.prepare(configured(f"url: {old.url}", f"url: {new.url}"))()
            await until(lambda: bool(new.taken()))
            assert len(old.taken()) == 1
            webhooks.prepare(configured(f"url: {new.url}"))()
        assert old.states() == [("a", "firing")]
        assert new.states() == [("a", "firing"), ("a", "resolved")]


async def test_a_reload_with_another_token_goes_on_with_what_is_pending(configured: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    with Receiver() as receiver:
        receiver.status = 503
        webhooks = Webhooks(configured(f"url: {receiver.url}, name: ops"), lambda: [overrun("a")])
        async with running(webhooks):
            await until(lambda: dict(webhooks.samples()["sluice_webhook_requests_total"])[("ops", FAILED)] >= 1)
            webhooks.prepare(configured(f"url: {receiver.url}, name: ops, token_file: token"))()
            receiver.status = 200
            await until(lambda: bool(receiver.taken()))
            assert receiver.posted[-1].fields["authorization"] == f"Bearer {SECRET}"
            counted = dict(webhooks.samples()["sluice_webhook_requests_total"])
            assert counted[("ops", FAILED)] >= 1


async def test_a_reload_from_and_to_no_receiver(configured: Callable[..., Settings]) -> None:
    with Receiver() as receiver:
        webhooks = Webhooks(configured(), lambda: [overrun("a")])
        async with running(webhooks):
            assert webhooks.samples() == {}
            webhooks.prepare(configured(f"url: {receiver.url}"))()
            await until(lambda: bool(receiver.taken()))
            webhooks.prepare(configured())()
            assert not webhooks.wanted
        assert receiver.states() == [("a", "firing")]


async def test_operators_see_a_receiver_that_is_away(configured: Callable[..., Settings]) -> None:
    webhooks = Webhooks(configured(f"url: http://{LOOPBACK}:{free_ports(1)[0]}, name: ops"), list)
    webhooks.take([overrun("a")], SINCE)
    assert webhooks.warnings() == []
    (hook,) = webhooks._hooks
    await hook.attempt()
    assert [warning.partition(":")[0] for warning in webhooks.warnings()] == ["webhook ops"]
    assert [*webhooks.samples()["sluice_webhook_pending_alerts"]] == [(("ops",), 1)]


def test_the_gateways_own_address_is_one_that_others_can_use(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(LISTENERS + 'admin: {bind: "[::1]:9999"}\n')
    assert hub.sender_of(load(file)) == AlertSender(GATEWAY, "http://[::1]:9999/")
    file.write_text(LISTENERS + "admin: {names: [sluice.monitoring.svc]}\n")
    assert hub.sender_of(load(file)) == AlertSender(GATEWAY, "http://sluice.monitoring.svc:9180/")


def test_the_pauses_are_as_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()
    assert "is tried again after 1 s, 2 s, 4 s, at most a minute" in page
    assert (hooks.POST_PAUSE_S, hooks.MAX_PAUSE_S, FINISH_S) == (1.0, 60.0, 2.0)
