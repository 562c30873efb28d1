"""One HTTP request with a body, by trio and h11, all of it within one time.

http.client's time-outs are per system call, so a receiver that drips its answer would hold a thread for ever. Here a cancelled request is
closed at once, whatever it waits for. Redirects are not followed, and of the answer's body the first MAX_BODY_BYTES are read.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import h11
import trio

if TYPE_CHECKING:
    from config.http_urls import UrlParts

MAX_HEAD_BYTES: Final = 16_384  # bytes; of the answer's head, as h11 bounds it by default
MAX_BODY_BYTES: Final = 65_536  # bytes; of the answer, which is of interest as an error only; a guess
READ_BYTES: Final = 16_384  # bytes; one read


class ReceiverSilentError(Exception):
    """The receiver did not answer; the words say why."""


class ReceiverAnswer(NamedTuple):
    """What the receiver has answered."""

    status: int
    body: bytes  # its beginning


async def post(
    where: UrlParts, body: bytes, fields: list[tuple[str, str]], context: ssl.SSLContext | None, timeout_s: float
) -> ReceiverAnswer:
    """Post `body` as JSON. `fields` go into the head. Raises ReceiverSilentError."""
    request = h11.Request(
        method="POST",
        target=where.target,
        headers=[
            ("Host", where.host_field), ("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Connection", "close"),
            *fields,
        ],
    )  # fmt: skip
    try:
        with trio.fail_after(timeout_s):
            return await _exchanged(where, request, body, context)
    except trio.TooSlowError:
        raise ReceiverSilentError(f"no answer within {timeout_s:g} s") from None
    except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
        raise ReceiverSilentError(reason(error)) from None


async def _exchanged(where: UrlParts, request: h11.Request, body: bytes, context: ssl.SSLContext | None) -> ReceiverAnswer:
    stream: trio.abc.Stream = await trio.open_tcp_stream(where.address.host, where.address.port)
    try:
        if context is not None:
            stream = trio.SSLStream(stream, context, server_hostname=where.address.host, https_compatible=True)
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        head = connection.send(request) or b""
        data = connection.send(h11.Data(data=body)) or b""
        connection.send(h11.EndOfMessage())
        if isinstance(stream, trio.SSLStream):
            await stream.do_handshake()
        with suppress(trio.BrokenResourceError):  # one that refuses the body may answer before it has read it
            await stream.send_all(head + data)
        return await _answer(stream, connection)
    finally:
        await trio.aclose_forcefully(stream)


async def _answer(stream: trio.abc.Stream, connection: h11.Connection) -> ReceiverAnswer:
    status = 0
    body = b""
    while len(body) < MAX_BODY_BYTES:
        try:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(READ_BYTES)))
                continue
        except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError):
            if status:  # the rest of the body is lost, the answer is not
                break
            raise
        if isinstance(event, h11.Response):
            status = event.status_code
            if 200 <= status < 300:  # its body says nothing, and may have no end
                break
        elif isinstance(event, h11.Data):
            body += event.data
        elif not isinstance(event, h11.InformationalResponse):
            break
    return ReceiverAnswer(status, body[:MAX_BODY_BYTES])


def reason(error: BaseException) -> str:
    """Why there was no answer, in a few words."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):  # one for each address that was tried
        return "; ".join(dict.fromkeys(reason(each) for each in cause.exceptions))
    if isinstance(cause, OSError):
        return reason(cause)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or 'unknown').lower().replace('_', ' ')}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, h11.RemoteProtocolError):
        return f"its answer is not HTTP: {str(error).partition(':')[0]}"  # the rest is the answer, which may repeat the request
    return "it closed the connection"
