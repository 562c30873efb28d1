"""One receiver: posts what it has not been told, and tries again while it is away.

A post that fails for a reason that may pass (no connection, no answer in time, 5xx, 429) is tried again, after 1 s, 2 s, 4 s, at most a
minute. What the receiver refuses (any other 4xx, or a redirect) is not: the same words would be refused again. The next change or repeat is
another try.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

import trio

from admin.alerting.http_post import ReceiverAnswer, ReceiverSilentError, post
from admin.alerting.payloads import alertmanager_alert, webhook_alert, webhook_message
from admin.alerting.pending import Pending
from common import log
from common.regular_files import read_regular
from common.supervised_loop import SupervisedLoop
from common.tls.certificates import TlsFileError
from config.http_urls import UrlParts, parts_of, webhook_url_in_file
from config.tls_files import webhook_hop
from gateway.build import VERSION

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from admin.alerting.alerts import Alert, AlertSender, Key
    from admin.alerting.payloads import JSONObject
    from admin.alerting.pending import AlertBatch
    from config.known_settings import WebhookSettings

POST_PAUSE_S: Final = 1.0  # seconds; between two posts to one receiver: what changes meanwhile is told at once
MAX_PAUSE_S: Final = 60.0  # seconds; between two tries while a receiver is away; a guess
TOLD_EVERY_S: Final = 60.0  # seconds; between two lines about a receiver that stays away
LAST_PAUSE_S: Final = 0.25  # seconds; between two tries while the gateway stops
MAX_SECRET_BYTES: Final = 16_384  # bytes; a file of a token or of a URL; far above what servers take as one field
MAX_QUOTE_CHARS: Final = 200  # characters; of an answer, in the log
API_PATH: Final = "/api/v2/alerts"  # of Alertmanager, below its own URL

T = TypeVar("T")
OK: Final = "ok"
FAILED: Final = "failed"
REJECTED: Final = "rejected"
TOO_MANY_REQUESTS: Final = 429
SERVERS_FAULT: Final = 500  # and above


class CannotPostError(Exception):
    """A file that a post needs is not there or not usable."""


MIN_SECRET_CHARS: Final = 4  # of a word of a URL that may be a secret; shorter ones, as "v1", are found in any text


def secret_words(url: str) -> list[str]:
    """The words of a URL's path and query that may be secrets."""
    _, _, target = url.partition("://")[2].partition("/")
    return [word for word in re.split("[/?&=]", unquote(target)) if len(word) >= MIN_SECRET_CHARS]


class Hook:
    """A receiver, what it has not been told, and how the last posts went."""

    def __init__(self, entry: WebhookSettings, sender: AlertSender, firing: Mapping[Key, Alert]) -> None:
        self.entry = entry
        self.sender = sender
        self.firing = firing  # all alerts that are; others change it
        self.pending = Pending()
        self.results = dict.fromkeys((OK, FAILED, REJECTED), 0)  # posts, by how they went
        self.failed_at: float | None = None  # trio's time of the first of the failures that go on; None: the last post was answered
        self.scope = trio.CancelScope()  # of its task
        self._words = secret_words(entry.url or "")
        self._failures = 0  # posts that failed, one after the other
        self._told_at = float("-inf")  # when the log was last told of them
        self._rejected_with = 0  # the status that the log was told of; 0: none
        self._news = trio.Event()
        self._repeat_at: float | None = None  # trio's time; None: not begun
        self._context: tuple[str, ssl.SSLContext] | None = None  # for a host
        self._files = trio.CapacityLimiter(1)  # threads; files on a disk that hangs cost one

    @property
    def label(self) -> str:
        return self.entry.label

    def put(self, alert: Alert) -> None:
        """The alert has begun or ended."""
        self.pending.put(alert)
        self._news.set()

    def inherit(self, before: Hook, *, same_receiver: bool) -> None:
        """Take over the counts of the one that had this name, and what it has not told the same receiver."""
        self.results = before.results
        self.pending.dropped = before.pending.dropped
        if same_receiver:
            self.pending.inherit(before.pending)
            self._told_at, self.failed_at, self._failures = before._told_at, before.failed_at, before._failures

    def forget_files(self) -> None:
        """Read the CAs again at the next post, also where a thread still reads on a disk that hangs."""
        self._context = None
        self._files = trio.CapacityLimiter(1)

    # ---- its task --------------------------------------------------------------------------------------------------------

    async def deliver(self) -> None:
        """Post what is due until cancelled."""
        loop = SupervisedLoop(f"webhook {self.label}")
        with self.scope:
            while True:
                await self._due()
                with loop:
                    await self.attempt()
                await trio.sleep(self.pause_s())

    async def finish(self) -> None:
        """Post what is pending until nothing is, or cancelled: the gateway stops."""
        with SupervisedLoop(f"webhook {self.label}"):
            while self.pending and await self.attempt() in {OK, FAILED}:
                if self._failures:
                    await trio.sleep(LAST_PAUSE_S)

    async def _due(self) -> None:
        while True:
            now = trio.current_time()
            if self._repeat_at is None:
                self._repeat_at = now + self.entry.repeat_s
            if now >= self._repeat_at:
                self._repeat_at = now + self.entry.repeat_s
                self.pending.repeat(self.firing)
            if self.pending:
                return
            self._news = trio.Event()
            with trio.move_on_at(self._repeat_at):
                await self._news.wait()

    def pause_s(self) -> float:
        """Until the next post."""
        return POST_PAUSE_S if not self._failures else min(POST_PAUSE_S * 2 ** min(self._failures - 1, 16), MAX_PAUSE_S)

    async def attempt(self) -> str:
        """One post; how it went."""
        batch = self.pending.batch(self.firing)
        try:
            answer = await self._post(await self._body(batch))
        except (ReceiverSilentError, CannotPostError) as error:
            return self._failed(str(error))
        if answer.status >= SERVERS_FAULT or answer.status == TOO_MANY_REQUESTS:
            return self._failed(f"it answers {answer.status}{self._quote(answer)}")
        self.pending.told(batch)
        return self._accepted() if 200 <= answer.status < 300 else self._rejected(answer, len(batch.taken))

    async def _body(self, batch: AlertBatch) -> bytes:
        """The loop has a turn after each alert, which takes 0.2 ms to write."""
        sender, entry = self.sender, self.entry
        written: list[JSONObject] = []
        to_alertmanager = entry.format == "alertmanager"
        for alert in [alert for alert, _ in batch.taken.values()] if to_alertmanager else batch.alerts:
            if to_alertmanager:
                written.append(alertmanager_alert(alert, sender.external_url, time.time(), entry.repeat_s))
            else:
                written.append(webhook_alert(alert, sender.external_url))
            await trio.lowlevel.checkpoint()
        if to_alertmanager:
            return json.dumps(written).encode()
        message = webhook_message(
            written, receiver=self.label, gateway=sender.gateway, external_url=sender.external_url,
            firing=any(alert["status"] == "firing" for alert in written) or bool(self.firing), truncated=batch.truncated,
        )  # fmt: skip
        return json.dumps(message).encode()

    async def _post(self, body: bytes) -> ReceiverAnswer:
        """Raises NoAnswerError, CannotPostError."""
        timeout_s = self.entry.timeout_ns / 1e9
        with trio.move_on_after(timeout_s):
            where = await self._where()
            context = await self._context_for(where)
            fields = [("User-Agent", f"sluice/{VERSION}")]
            if self.entry.token_file is not None:
                read = partial(authorization, self.entry.token_file, self.entry.user)
                fields.append(("Authorization", await self._on_thread(read)))
            return await post(where, body, fields, context, timeout_s)
        raise ReceiverSilentError(f"no answer within {timeout_s:g} s")

    async def _where(self) -> UrlParts:
        url = self.entry.url or ""
        if self.entry.url_file is not None:
            url = await self._on_thread(partial(url_of, self.entry.url_file))
        return parts_of(api_url(url) if self.entry.format == "alertmanager" else url)

    async def _context_for(self, where: UrlParts) -> ssl.SSLContext | None:
        if where.scheme != "https":
            return None
        host = where.address.host
        if self._context is None or self._context[0] != host:
            self._context = host, await self._on_thread(partial(context_of, self.entry.ca, host))
        return self._context[1]

    async def _on_thread(self, work: Callable[[], T]) -> T:
        """Cancelled, it ends at once; the thread ends by itself, and until then there is no other."""
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._files)

    # ---- how it went -----------------------------------------------------------------------------------------------------

    def _accepted(self) -> str:
        self.results[OK] += 1
        if self.failed_at is not None or self._rejected_with:
            since = self.failed_at
            after_s = None if since is None else round(trio.current_time() - since, 1)
            log.event(logging.INFO, "webhook_recovered", webhook=self.label, after_s=after_s)
        self._answered()
        self._rejected_with = 0
        return OK

    def _rejected(self, answer: ReceiverAnswer, alerts: int) -> str:
        self.results[REJECTED] += 1
        if answer.status != self._rejected_with:
            self._rejected_with = answer.status
            remedy = "these alerts are not sent again; see the receiver's own log"
            if 300 <= answer.status < 400:
                remedy = "redirects are not followed: name the address that it leads to in url"
            elif answer.status in {401, 403}:
                remedy = "these alerts are not sent again; look at token_file and user"
            elif answer.status in {404, 405}:
                remedy = "these alerts are not sent again; look at the path of url, and at format"
            err = f"it answers {answer.status}{self._quote(answer)}"
            log.event(logging.ERROR, "webhook_rejected", webhook=self.label, alerts=alerts, err=err, remedy=remedy)
        self._answered()
        return REJECTED

    def _failed(self, why: str) -> str:
        self.results[FAILED] += 1
        self._failures += 1
        now = trio.current_time()
        if self.failed_at is None:
            self.failed_at = now
        if now - self._told_at >= TOLD_EVERY_S:
            self._told_at = now
            log.event(
                logging.WARNING, "webhook_failed", webhook=self.label, alerts=len(self.pending), err=why,
                remedy="the latest state of each alert is kept, and tried again",
            )  # fmt: skip
        return FAILED

    def _answered(self) -> None:
        self.failed_at = None
        self._failures = 0
        self._told_at = float("-inf")

    def _quote(self, answer: ReceiverAnswer) -> str:
        """The answer's first words; none where it could repeat what a file holds, or does repeat a word of the URL, which may be one."""
        from html import unescape  # here, because it brings tables that nothing else needs

        whole = unquote(unescape(answer.body.decode(errors="replace")))
        from_file = self.entry.token_file is not None or self.entry.url_file is not None
        if from_file or any(word in whole for word in self._words):
            return ""
        text = " ".join(answer.body[: 4 * MAX_QUOTE_CHARS].decode(errors="replace").split())[:MAX_QUOTE_CHARS]
        return f": {text}" if text else ""

    def __repr__(self) -> str:
        return f"<Hook {self.label} {self.pending!r} failures={self._failures}>"


def api_url(url: str) -> str:
    """Where Alertmanager takes alerts, of its own URL or of that."""
    return url if url.endswith(API_PATH) else url.rstrip("/") + API_PATH


def context_of(ca: Path | None, host: str) -> ssl.SSLContext:
    """TLS towards a receiver; on a thread, as the system's CAs take 20 ms. Raises CannotPostError."""
    try:
        return webhook_hop(ca, host).context
    except TlsFileError as error:
        raise CannotPostError(str(error)) from None


def secret_in(file: Path, held: str) -> bytes:
    """What a file holds. On a thread: the disk may hang. Raises CannotPostError."""
    try:
        found = read_regular(file, MAX_SECRET_BYTES).strip()
    except OSError as error:
        raise CannotPostError(f"{file} cannot be read: {error.strerror}") from None
    if not found or len(found) > MAX_SECRET_BYTES:
        raise CannotPostError(f"{file} {f'holds too much for {held}' if found else 'is empty'}")
    return found


def url_of(file: Path) -> str:
    """The URL in a file. Raises CannotPostError, which says nothing of it."""
    url = webhook_url_in_file(secret_in(file, "a URL").decode(errors="replace"))
    if url is None:
        raise CannotPostError(f"{file} does not hold one URL alone, like https://alerts.example/hooks/sluice, without credentials and #")
    return url


def authorization(file: Path, user: str | None) -> str:
    """The value of the field Authorization. On a thread: the disk may hang. Raises CannotPostError, without the token."""
    token = secret_in(file, "a token")
    if user is not None:
        return "Basic " + base64.b64encode(user.encode() + b":" + token).decode()
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise CannotPostError(f"{file} holds something other than one token of printable ASCII")
    return f"Bearer {token.decode()}"
