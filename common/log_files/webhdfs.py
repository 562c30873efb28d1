"""HDFS over WebHDFS, its HTTP interface (hadoop.apache.org, "WebHDFS REST API"), with the standard library.

A file is written under a name with `_` before it, which Hadoop's readers pass over, and renamed. Users are named (`user.name`), or show a
delegation token in SLUICE_WEBHDFS_TOKEN. Kerberos is not spoken here; there `hdfs dfs -put` ships.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from common.bounded_socket import Allowance, bounded
from common.log_files.targets import FAILED, MAX_MANIFEST_BYTES, REFUSED, SLOWEST, UNREACHABLE, Stored, TargetError

TIMEOUT_S: Final = 60.0  # seconds; without a byte from the other side, and for a whole exchange
MAX_ANSWER_BYTES: Final = 1 << 20  # bytes; head and JSON, which has some hundreds
PORTS: Final = {"webhdfs": 9870, "swebhdfs": 9871}  # of Hadoop 3's name node
TOKEN: Final = "SLUICE_WEBHDFS_TOKEN"  # noqa: S105  -- the variable's name
CHUNK: Final = 1 << 20  # bytes


class SentBody(NamedTuple):
    """What is sent."""

    data: IO[bytes] | bytes
    size: int


class WebHdfs:
    """A folder of HDFS."""

    def __init__(self, scheme: str, host: str, port: int | None, path: str, user: str, environ: Mapping[str, str]) -> None:
        port = port or PORTS[scheme]
        self.url = f"{scheme}://{host}:{port}{path}".rstrip("/")
        self._secure = scheme == "swebhdfs"
        self._name_node = f"{'https' if self._secure else 'http'}://{host}:{port}"
        self._path = path.rstrip("/")
        token = environ.get(TOKEN)
        self._identity = {"delegation": token} if token else {"user.name": user} if user else {}

    def stat(self, name: str, size: int) -> Stored | None:
        found = self._json("GET", name, "GETFILESTATUS", absent=True)
        if found is None:
            return None
        length = int(found["FileStatus"]["length"])
        if length != size:
            return Stored(length, "")
        digest = hashlib.sha256()
        with self._ask("GET", name, "OPEN", size=size) as answer:
            while data := answer.read(CHUNK):
                digest.update(data)
        return Stored(length, digest.hexdigest())

    def put(self, name: str, path: Path, sha256: str) -> None:
        del sha256  # HDFS checks every block that it is sent by its own checksums
        size = path.stat().st_size
        with path.open("rb") as file:
            self._write(name, file, size)

    def put_bytes(self, name: str, data: bytes) -> None:
        self._write(name, data, len(data))

    def get(self, name: str) -> bytes | None:
        if self._json("GET", name, "GETFILESTATUS", absent=True) is None:
            return None
        with self._ask("GET", name, "OPEN", size=MAX_MANIFEST_BYTES) as answer:
            return answer.read()

    def _write(self, name: str, body: IO[bytes] | bytes, size: int) -> None:
        folder, _, last = name.rpartition("/")
        aside = f"{folder}/_{last}.tmp"
        with self._ask("PUT", aside, "CREATE", {"overwrite": "true"}, body=SentBody(body, size)):
            pass
        found = self._json("GET", aside, "GETFILESTATUS") or {}
        if found.get("FileStatus", {}).get("length") != size:
            raise TargetError(FAILED, f"{self.url}/{aside}: {size} bytes were sent and it has others; the next run sends it again")
        if self._rename(aside, name):
            return
        self._json("DELETE", name, "DELETE")  # a rename replaces nothing
        if not self._rename(aside, name):
            raise TargetError(FAILED, f"{self.url}/{aside}: HDFS does not rename it to {last}; remove {last} there, and run again")

    def _rename(self, source: str, target: str) -> bool:
        done = self._json("PUT", source, "RENAME", {"destination": f"{self._path}/{target}"})
        return bool(done and done.get("boolean"))

    def _json(
        self, method: str, name: str, operation: str, words: Mapping[str, str] | None = None, *, absent: bool = False
    ) -> dict[str, Any] | None:
        with self._ask(method, name, operation, words, absent=absent) as answer:
            text = answer.read()
            if absent and answer.status == http.client.NOT_FOUND:
                return None
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            raise TargetError(FAILED, f"{self.url}: no answer of WebHDFS, but {text[:60]!r}; is this the name node's HTTP port?") from None
        return found

    @contextmanager
    def _ask(
        self,
        method: str,
        name: str,
        operation: str,
        words: Mapping[str, str] | None = None,
        *,
        body: SentBody | None = None,
        absent: bool = False,
        size: int = 0,
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to one operation; a body goes to where the name node sends the request on to. Raises TargetError.

        `size`: bytes of the file that may come with it.
        """
        query = urlencode({"op": operation, **self._identity, **(words or {})})
        url = f"{self._name_node}/webhdfs/v1{quote(self._path)}/{quote(name)}?{query}"
        with self._exchange(method, url, None, size) as answer:
            where = answer.getheader("Location")
            if answer.status != http.client.TEMPORARY_REDIRECT or where is None:
                self._check(answer, absent=absent)
                if body is not None:
                    raise TargetError(FAILED, f"{self.url}: the name node names no data node to write to; is this its HTTP port?")
                yield answer
                return
        with self._exchange(method, where, body, size) as answer:
            self._check(answer, absent=absent)
            yield answer

    @contextmanager
    def _exchange(self, method: str, url: str, body: SentBody | None, size: int) -> Iterator[http.client.HTTPResponse]:
        where = urlsplit(url)
        moved = size + (0 if body is None else body.size)
        allowance = Allowance(TIMEOUT_S + moved / SLOWEST, MAX_ANSWER_BYTES + size)
        host = where.hostname or ""
        connection: http.client.HTTPConnection
        if where.scheme == "https":
            kind = bounded(http.client.HTTPSConnection, "connect", allowance)
            connection = kind(host, where.port, timeout=TIMEOUT_S, context=ssl.create_default_context())
        else:
            connection = bounded(http.client.HTTPConnection, "connect", allowance)(host, where.port, timeout=TIMEOUT_S)
        try:
            headers = {}
            if body is not None:
                headers = {"Content-Type": "application/octet-stream", "Content-Length": str(body.size)}
            connection.request(method, f"{where.path}?{where.query}", None if body is None else body.data, headers)
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise TargetError(UNREACHABLE, f"{host}:{where.port}: {error}; look at the network, and at that node of HDFS") from error
        finally:
            connection.close()

    def _check(self, answer: http.client.HTTPResponse, *, absent: bool) -> None:
        if answer.status < http.client.BAD_REQUEST or (absent and answer.status == http.client.NOT_FOUND):
            return
        text = answer.read(CHUNK)
        try:
            said = json.loads(text)["RemoteException"]["message"].partition("\n")[0]
        except (ValueError, KeyError, TypeError, AttributeError):
            said = answer.reason
        if answer.status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            way_out = f"name a user (webhdfs://USER@HOST/..., HADOOP_USER_NAME) or give a delegation token in {TOKEN}"
            raise TargetError(REFUSED, f"{self.url}: {answer.status} {said}; {way_out}")
        raise TargetError(FAILED, f"{self.url}: {answer.status} {said}; the next run goes on where this one ended")
