"""A client of the admin API (`docs/design/contract.md` 5): one request, one answer, errors as exit codes. Standard library only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from cli.admin_address import AdminAddress, ClientTls
from cli.exits import CommandError
from cli.token_search import TokenSearch, look_for_token
from common.bounded_socket import Allowance, AnswerTooLateError
from common.failures import CONFLICT, FAILED, NOT_AUTHORISED, NOT_FOUND, POLICY, UNREACHABLE
from common.records import dataclass
from limiter.topics import path_segment

CODES: Final = {
    401: NOT_AUTHORISED,
    403: NOT_AUTHORISED,
    404: NOT_FOUND,
    409: CONFLICT,
    412: CONFLICT,
    421: POLICY,  # the gateway does not answer to this host name
    428: CONFLICT,
    429: NOT_AUTHORISED,  # too many failed attempts
}
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
MAX_ANSWER_BYTES: Final = 64 << 20  # bytes; one answer: a page of a list, the metrics of 10,000 topics; a guess
MAX_QUOTAS_BYTES: Final = 512 << 20  # bytes; the same of quotas; a guess: a publication has 16 MiB at most
MAX_EVENT_BYTES: Final = 1 << 20  # bytes; one line of a stream; a guess
WHOLE: Final = 12  # times the patience for a read: the time for a whole answer, two minutes by default; a guess
STREAM_SILENCE_S: Final = 40.0  # seconds; a stream without a byte is dead: the gateway sends a comment every 15 s
PAGE: Final = 500  # items; the most that the API gives at once


@dataclass(frozen=True, slots=True)
class Reply:
    """A 2xx answer: its status, its ETag ("" without), and its body, decoded where it is JSON."""

    status: int
    etag: str
    body: Any

    @property
    def members(self) -> dict[str, Any]:
        """Of the body; {} where it is no object."""
        return self.body if isinstance(self.body, dict) else {}


def path(*words: str) -> str:
    """A path of raw words, each a segment: `path("rules", "a/b")` is `/v1/rules/a%2Fb`. An argument that is not UTF-8 keeps its bytes."""
    return "/v1/" + "/".join(path_segment(word.encode(errors="surrogateescape")) for word in words)


class AdminClient:
    """Talks to one gateway. A new connection for every request; nothing is retried."""

    def __init__(
        self, url: str, token: str | None, timeout_s: float, origin: TokenSearch | None = None, tls: ClientTls | None = None
    ) -> None:
        """`origin` says where the token is from, for messages. `tls` is by default as the environment says.

        Raises CommandError for a URL that is none.
        """
        self.address = AdminAddress.of(url)
        self.url = self.address.url
        self.tls = ClientTls.of(os.environ) if tls is None else tls
        self._token = token
        self._origin = origin or TokenSearch(token, "the caller")
        self._timeout_s = timeout_s

    @property
    def has_token(self) -> bool:
        return self._token is not None

    @property
    def secret(self) -> str:
        """The token, for those who take it out of texts; "" without one."""
        return self._token or ""

    def ask(
        self,
        method: str,
        target: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        data: bytes | None = None,
        gzip: bool = False,
        if_match: str | None = None,
        if_new: bool = False,
        timeout_s: float = 0,
    ) -> Reply:
        """Send one request (`body` as JSON, or `data` as it is, which `gzip` says is compressed), and wait at least `timeout_s`.

        `if_new`: it is refused where there is something already.
        Raises CommandError for anything but a 2xx.
        """
        import http.client  # here, as in `AdminAddress.connection`

        wanted = {name: value for name, value in (query or {}).items() if value}
        full = target + ("?" + urlencode(wanted) if wanted else "")
        headers = {"Accept": "application/json", "User-Agent": "sluice-cli"}
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        if gzip:
            headers["Content-Encoding"] = "gzip"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if if_match is not None:
            headers["If-Match"] = if_match
        if if_new:
            headers["If-None-Match"] = "*"
        patience_s = max(self._timeout_s, timeout_s)
        most = MAX_QUOTAS_BYTES if target.startswith("/v1/quotas") else MAX_ANSWER_BYTES
        connection = self.address.connection(self.tls, patience_s, Allowance(WHOLE * patience_s, most))
        try:
            connection.request(method, full, data, headers)
            answer = connection.getresponse()
            raw = answer.read()
        except AnswerTooLateError as error:
            raise CommandError(UNREACHABLE, f"{self.url}: {error}; see --timeout") from None
        except TimeoutError:
            raise CommandError(UNREACHABLE, f"{self.url} did not answer within {patience_s:g} s; see --timeout") from None
        except (OSError, http.client.HTTPException) as error:
            raise self.address.unreachable(error, self.tls) from None
        finally:
            connection.close()
        content = self._content(raw, answer.headers.get_content_subtype())
        if answer.status >= 300:
            raise self._error(f"{method} {target}", answer.status, content)
        return Reply(answer.status, answer.headers.get("ETag", ""), content)

    def follow(self, target: str, query: Mapping[str, str], last_id: str = "") -> Iterator[tuple[str, str, Any]]:
        """Server-sent events as they come: kind, id, data. Ends when the gateway ends it; raises CommandError, UNREACHABLE where it breaks.

        `last_id`: go on after this event.
        """
        import http.client

        headers = {"Accept": "text/event-stream", "User-Agent": "sluice-cli"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if last_id:
            headers["Last-Event-ID"] = last_id
        connection = self.address.connection(self.tls, STREAM_SILENCE_S)
        try:
            connection.request("GET", target + "?" + urlencode(query), None, headers)
            answer = connection.getresponse()
            if answer.status >= 300:
                raw = answer.read(MAX_EVENT_BYTES)
                raise self._error(f"GET {target}", answer.status, self._content(raw, answer.headers.get_content_subtype()))
            fields: dict[str, str] = {}
            while line := answer.readline(MAX_EVENT_BYTES):
                if len(line) == MAX_EVENT_BYTES:
                    raise ValueError
                name, _, text = line.decode().rstrip("\r\n").partition(": ")
                if name:
                    fields[name] = text
                elif "data" in fields:
                    yield fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"])
                if not name:
                    fields = {}
        except (OSError, http.client.HTTPException) as error:
            raise self.address.unreachable(error, self.tls) from None
        except ValueError:
            raise CommandError(FAILED, f"{self.url} answered with something that is not a stream of events") from None
        finally:
            connection.close()

    def items(self, target: str, query: Mapping[str, str] | None = None, *, most: int | None = None) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page; at most `most`."""
        query = dict(query or {})
        given = 0
        while most is None or given < most:
            body = self.ask("GET", target, query={**query, "limit": str(min(PAGE, (most or given + PAGE) - given))}).body
            found = find_items(body)
            yield from found
            given += len(found)
            cursor = body.get("next") if isinstance(body, dict) else None
            if not cursor or not found:
                return
            query["cursor"] = str(cursor)

    def whole(self, target: str) -> Any:
        """The answer of a list with the items of all its pages."""
        body = self.ask("GET", target, query={"limit": str(PAGE)}).body
        while isinstance(body, dict) and body.get("next"):
            more = self.ask("GET", target, query={"limit": str(PAGE), "cursor": str(body["next"])}).body
            body = {**more, "items": [*find_items(body), *find_items(more)]}
        return body

    def _content(self, raw: bytes, subtype: str) -> Any:
        if not subtype.endswith("json"):
            return raw.decode(errors="replace")
        try:
            return json.loads(raw) if raw else None
        except (ValueError, RecursionError):
            raise CommandError(FAILED, f"{self.url} answered with something that is not JSON; is it a sluice gateway?") from None

    def _error(self, what: str, status: int, content: Any) -> CommandError:
        """An RFC 9457 problem as an error, with all its faults."""
        problem = content if isinstance(content, dict) else {}
        name = str(problem.get("type", "")).rpartition(":")[2]
        detail = problem.get("detail") or problem.get("title") or _PHRASES.get(status, "")
        faults = [
            ": ".join(filter(None, map(each.get, ("pointer", "message")))) for each in problem.get("errors", []) if isinstance(each, dict)
        ]
        code = POLICY if name in {"policy", "refused-by-policy", "pattern"} else CODES.get(status, FAILED)
        if status == 401:
            faults += self._origin.remedy()
        return CommandError(code, f"{what}: {status}: {detail}", faults, status, content)

    def __repr__(self) -> str:
        return f"<AdminClient {self.url}>"


def find_items(body: Any) -> list[dict[str, Any]]:
    """The items of a list answer: the answer itself, or its one member that is a list."""
    if isinstance(body, dict):
        body = body.get("items") if "items" in body else next((value for value in body.values() if isinstance(value, list)), None)
    if not isinstance(body, list):
        raise CommandError(FAILED, "the gateway's answer is not a list; do the versions of sluice here and there agree?")
    return [item for item in body if isinstance(item, dict)]


def token_for(url: str, token_file: Path | None, environ: Mapping[str, str]) -> str | None:
    """The bearer token for the gateway at `url` (`look_for_token`). Raises CommandError where the file given cannot be read."""
    return look_for_token(url, token_file, environ).token
