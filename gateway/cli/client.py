"""A client of the admin API (`docs/design/contract.md` 5): one request, one answer, errors as exit codes. Standard library only."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from gateway.cli.exits import CONFLICT, FAILED, NOT_AUTHORISED, NOT_FOUND, POLICY, UNREACHABLE, USAGE, CommandError

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
MAX_ANSWER_BYTES: Final = 512 << 20  # bytes; one answer; a snapshot of quotas may have 256 MiB
PAGE: Final = 500  # items; the most that the API gives at once


@dataclass(frozen=True, slots=True)
class Reply:
    """A 2xx answer: its status, its ETag ("" without), and its body, decoded where it is JSON."""

    status: int
    etag: str
    body: Any


def path(*words: str) -> str:
    """A path of raw words, each percent-encoded: `path("rules", "a/b")` is `/v1/rules/a%2Fb`."""
    return "/v1/" + "/".join(_segment(word) for word in words)


def _segment(word: str) -> str:
    encoded = quote(word.encode(errors="surrogateescape"), safe="")  # an argument that is not UTF-8 keeps its bytes
    return encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded


class AdminClient:
    """Talks to one gateway. A new connection for every request; nothing is retried."""

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            self.host, self.port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise CommandError(USAGE, f"--admin {url}: {error}; write it like http://127.0.0.1:9180") from None
        if parts.scheme not in {"http", "https"} or not self.host or parts.path not in {"", "/"}:
            raise CommandError(USAGE, f"--admin {url}: not the address of an admin API; write it like http://127.0.0.1:9180")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._https = parts.scheme == "https"
        self._token = token
        self._timeout_s = timeout_s

    @property
    def has_token(self) -> bool:
        return self._token is not None

    def ask(
        self,
        method: str,
        target: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        data: bytes | None = None,
        if_match: str | None = None,
        timeout_s: float = 0,
    ) -> Reply:
        """Send one request (`body` as JSON, or `data` as it is), and wait at least `timeout_s`.

        Raises CommandError for anything but a 2xx.
        """
        import http.client  # here, because it brings ssl and email, which `sluice run` need not wait for

        wanted = {name: value for name, value in (query or {}).items() if value}
        full = target + ("?" + urlencode(wanted) if wanted else "")
        headers = {"Accept": "application/json", "User-Agent": "sluice-cli"}
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if if_match is not None:
            headers["If-Match"] = if_match
        make = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        patience_s = max(self._timeout_s, timeout_s)
        connection = make(self.host, self.port, timeout=patience_s)
        try:
            connection.request(method, full, data, headers)
            answer = connection.getresponse()
            raw = answer.read(MAX_ANSWER_BYTES + 1)
        except TimeoutError:
            raise CommandError(UNREACHABLE, f"{self.url} did not answer within {patience_s:g} s; see --timeout") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CommandError(UNREACHABLE, f"{self.url} cannot be reached: {reason}; is the gateway running, is --admin right?") from None
        finally:
            connection.close()
        content = self._content(raw, answer.headers.get_content_subtype())
        if answer.status >= 300:
            raise self._error(f"{method} {target}", answer.status, content)
        return Reply(answer.status, answer.headers.get("ETag", ""), content)

    def items(self, target: str, query: Mapping[str, str] | None = None, *, most: int | None = None) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page; at most `most`."""
        query = dict(query or {})
        given = 0
        while most is None or given < most:
            body = self.ask("GET", target, query={**query, "limit": str(min(PAGE, (most or given + PAGE) - given))}).body
            found = listed(body)
            yield from found
            given += len(found)
            cursor = body.get("next") if isinstance(body, dict) else None
            if not cursor or not found:
                return
            query["cursor"] = str(cursor)

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
        code = POLICY if name in {"policy", "refused-by-policy"} else CODES.get(status, FAILED)
        hint = "; see --token-file" if status == 401 else ""
        return CommandError(code, f"{what}: {status}: {detail}{hint}", faults, status, content)

    def __repr__(self) -> str:
        return f"<AdminClient {self.url}>"


def listed(body: Any) -> list[dict[str, Any]]:
    """The items of a list answer: the answer itself, or its one member that is a list."""
    if isinstance(body, dict):
        body = body.get("items") if "items" in body else next((value for value in body.values() if isinstance(value, list)), None)
    if not isinstance(body, list):
        raise CommandError(FAILED, "the gateway's answer is not a list; do the versions of sluice here and there agree?")
    return [item for item in body if isinstance(item, dict)]


def token_for(url: str, token_file: Path | None, environ: Mapping[str, str]) -> str | None:
    """The bearer token: from the given file, else SLUICE_TOKEN, else, for a gateway on this machine, its `admin.token` if readable.

    Raises CommandError where the file given cannot be read.
    """
    if token_file is not None:
        try:
            return _token(token_file.read_text(), str(token_file))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise CommandError(USAGE, f"the token file {token_file} cannot be read: {reason}") from None
    if environ.get("SLUICE_TOKEN"):
        return _token(environ["SLUICE_TOKEN"], "SLUICE_TOKEN")
    host = urlsplit(url if "//" in url else f"http://{url}").hostname or ""
    if not re.fullmatch(r"localhost|127\.[0-9.]+|::1", host):
        return None  # a local gateway's token is not sent to another machine
    for directory in _state_directories(environ):
        try:
            file = directory / "admin.token"
            if stat.S_ISREG(file.stat().st_mode):
                return _token(file.read_text(), str(file))
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _token(text: str, where: str) -> str:
    token = text.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise CommandError(USAGE, f"{where} does not hold a token: one line of printable characters")
    return token


def _state_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where a gateway on this machine may keep its state, most likely first."""
    if environ.get("SLUICE_GATEWAY__STATE_DIRECTORY"):
        yield Path(environ["SLUICE_GATEWAY__STATE_DIRECTORY"])
    if environ.get("SLUICE_CONFIG"):
        from gateway.settings import ConfigError, load

        try:
            yield load(environ["SLUICE_CONFIG"], os.environ).gateway.state_directory
        except ConfigError:
            yield Path(environ["SLUICE_CONFIG"]).parent / "state"
    if environ.get("STATE_DIRECTORY"):  # systemd's
        yield Path(environ["STATE_DIRECTORY"].partition(":")[0])
    yield from (Path("state"), Path("config/state"), Path("/var/lib/sluice"))
