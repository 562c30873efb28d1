"""Messages that no broker takes, and bytes that are no messages any more: kept in files that operators can read.

One file for each process, `set-aside/NAME.jsonl` in the directory of the spool: a line of JSON for each message, its body in Base64. What
is damaged is copied as it is, to `set-aside/NAME-FILE-OFFSET.damaged`. Nothing here is ever deleted by the gateway.
"""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.protocols.rocketmq.spool_copy import messages_of
from gateway.spool.disk import sync_directory
from gateway.spool.records import DamagedError

if TYPE_CHECKING:
    from gateway.protocols.amqp.publishes_again import AgainMessage
    from gateway.protocols.rocketmq.sends_again import SendAgain
    from gateway.spool.left_behind import Damage

FOLDER: Final = "set-aside"


class SetAside:
    """The files of one process. Called on threads; raises OSError, and then nothing counts as set aside."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory / FOLDER
        self.file = self.directory / f"{name}.jsonl"
        self._name = name

    def add(self, message: AgainMessage, origin: dict[str, str], reason: str) -> None:
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "reason": reason,
            "listener": origin.get("listener"),
            "vhost": origin.get("vhost"),
            "user": origin.get("user"),
            "exchange": message.exchange.decode("utf-8", "backslashreplace"),
            "routing_key": message.routing_key.decode("utf-8", "backslashreplace"),
            "content_header": base64.b64encode(message.header).decode(),
            "body": base64.b64encode(message.body).decode(),
        }
        self._write(self.file, (json.dumps(line, ensure_ascii=False) + "\n").encode())

    def add_send(self, message: SendAgain, origin: dict[str, str], reason: str) -> None:
        """One line for each message of the request, as the file of a drain has it."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            messages = messages_of(message.body, 0, len(message.body))
        except (DamagedError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):  # it is no request, whatever wrote it
            messages = [{"topic": origin.get("topic"), "frame": base64.b64encode(message.body).decode()}]
        lines = [
            json.dumps({"at": at, "reason": reason, "listener": origin.get("listener"), **told}, ensure_ascii=False) for told in messages
        ]
        self._write(self.file, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))

    def add_damage(self, folder: str, damage: Damage) -> None:
        """`folder`: the directory of the process that wrote it."""
        self._write(self.directory / f"{self._name}-{folder}-{damage.file}-{damage.offset}.damaged", damage.data)

    def _write(self, file: Path, data: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, before)  # no half line
                raise
        finally:
            os.close(descriptor)
        if before == 0:
            sync_directory(self.directory)

    def __repr__(self) -> str:
        return f"<SetAside {self.file}>"
