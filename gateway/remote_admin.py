"""Remote admin: limit requests on their way from a session to the admin's limit request service and back.

A conversation is sans-IO and a change must be on the disk before it is answered, so such a request leaves its session (`take`, called in
the session's turn) and is answered later, between two sweeps, while the session's other traffic goes on. One request is done at a time, in
their order. While MAX_QUEUED wait, further ones are answered at once that the gateway is busy: so requests cost a bounded amount of memory.

`protocols/rocketmq/limit_requests.py` reads what is asked and whether the client may; `admin/remote_admin.py` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import trio

from common import log
from gateway.protocols.rocketmq.limit_requests import NO_PERMISSION, SUCCESS, SYSTEM_ERROR, LimitRequest, build_answer
from gateway.protocols.rocketmq.refusals import SYSTEM_BUSY
from gateway.protocols.rocketmq.requests import GatewayRequest
from gateway.session.session import Session
from gateway.session.states import OVER

if TYPE_CHECKING:
    from gateway.pipeline.parts import Part

MAX_QUEUED: Final = 64  # requests; a console waits for each answer, so it has one or two under way; a guess
# Requests; while so many wait, those without permission are answered at once, without a line in log and audit. The rest is for the others.
MAX_QUEUED_WITH_FORBIDDEN: Final = 32
ANSWERS: Final = (SUCCESS, SYSTEM_ERROR, SYSTEM_BUSY, NO_PERMISSION)  # the codes of all answers
BUSY: Final = "the gateway has too many requests of this kind to do; ask again"
FAILED: Final = "the gateway could not do this; its log says why"


class LimitRequestService(Protocol):
    """Does what is asked: `admin.remote_admin.LimitRequestService`."""

    async def view(self) -> bytes: ...

    async def change(self, action: str, topic: bytes, rate: float, client: str, access_key: str, request_id: str) -> str: ...

    async def refuse(self, action: str, why: str, client: str, access_key: str, request_id: str) -> None: ...

    async def turn_away(self, action: str, why: str, client: str, access_key: str, request_id: str) -> None: ...


class RemoteAdmin:
    """Takes requests out of sessions and brings their answers back. `wake` lets a session take a turn, so that its answer leaves."""

    def __init__(self, service: LimitRequestService, wake: Callable[[Session], None]) -> None:
        self._service = service
        self._wake = wake
        self._send: trio.MemorySendChannel[tuple[Session, LimitRequest]]
        self._receive: trio.MemoryReceiveChannel[tuple[Session, LimitRequest]]
        self._send, self._receive = trio.open_memory_channel(MAX_QUEUED)
        self.counts: dict[tuple[int, int], int] = {}  # (request's code, answer's code) -> requests; bounded by the codes

    def take(self, session: object, part: Part) -> None:
        """The client of `session` has sent a limit request."""
        assert isinstance(session, Session)
        assert isinstance(part, GatewayRequest)
        request = LimitRequest(part)
        why = refusal(session, request)
        if why and self._send.statistics().current_buffer_used >= MAX_QUEUED_WITH_FORBIDDEN:
            self._answer(session, request, NO_PERMISSION, why)
            return
        try:
            self._send.send_nowait((session, request))
        except trio.WouldBlock:
            self._answer(session, request, SYSTEM_BUSY, BUSY)

    async def run(self) -> None:
        """Do what is asked, one request after another, until cancelled."""
        async for session, request in self._receive:
            code, remark, body = SYSTEM_ERROR, FAILED, b""
            try:
                code, remark, body = await self._do(session, request)
            except Exception as error:  # let it crash: this request only
                log.failure("remote_admin_failed", error, code=request.code)
            self._answer(session, request, code, remark, body)

    async def _do(self, session: Session, request: LimitRequest) -> tuple[int, str, bytes]:
        """Code, remark and body of the answer."""
        context = session.conversation.context
        who = (context.client, request.access_key, f"{session.number}/{request.opaque}")
        action = str(request.code)
        why = refusal(session, request)
        if why:
            await self._service.turn_away(action, why, *who)
            return NO_PERMISSION, why, b""
        if request.fault:
            await self._service.refuse(action, request.fault, *who)
            return SYSTEM_ERROR, request.fault, b""
        if not request.changes():
            return SUCCESS, "", await self._service.view()
        why = await self._service.change(action, request.topic, request.rate, *who)
        return (SYSTEM_ERROR, why, b"") if why else (SUCCESS, "", b"")

    def _answer(self, session: Session, request: LimitRequest, code: int, remark: str, body: bytes = b"") -> None:
        done = (request.code, code)
        self.counts[done] = self.counts.get(done, 0) + 1
        if session.state != OVER:
            session.conversation.answer(b"" if request.one_way else build_answer(request.opaque, code, remark, body))
            self._wake(session)

    def __repr__(self) -> str:
        return f"<RemoteAdmin {self._receive.statistics().current_buffer_used} waiting, answered={sum(self.counts.values())}>"


def refusal(session: Session, request: LimitRequest) -> str:
    """Why the client of `session` may not send limit requests, or ""."""
    permission = session.listener_config.remote_admin
    if permission is None:
        return "this listener takes no limit requests"
    return permission.fault(session.conversation.context.client, request.access_key)
