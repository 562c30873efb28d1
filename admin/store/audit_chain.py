"""Verification of the journals' hash chains, on the files alone: the first line that was altered, removed, inserted, moved or cut.

The chain begins with the first line of the older file. What was before it has been rolled away, so the report says from which line on the
chain holds. Lines that a version before the chain has written are counted, and must stand before all others. The end of a chain cannot
vouch for itself: that nothing is missing there is checked against `state.json`, which knows the line of the last change.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from admin.store.journal import BEGIN, ENTRY_AT, FILE, OLDER, REFUSALS, chain_hash, parse
from admin.store.state import StateError, decode_state

MAX_LINE: Final = 64 << 20  # bytes; above the longest line, which publishes a snapshot of quotas


class Break(msgspec.Struct, frozen=True):
    """The first fault of a chain: file, line (from 1) and byte where the line begins, and the fault."""

    file: str
    line: int
    byte: int
    fault: str


class ChainReport(msgspec.Struct, frozen=True):
    """One journal. The chain holds from the line of sequence `first` at `since` on, to that of `last`; `unchained` lines are before it."""

    file: str
    ok: bool
    lines: int
    unchained: int
    first: int
    since: str
    last: int
    complete: bool  # nothing was rolled away: the chain begins with the first line that was ever written
    broken: Break | None = None


class AuditReport(msgspec.Struct, frozen=True):
    """Both journals. `faults` are for people: one for each thing that is wrong, files set aside at a start included."""

    ok: bool
    journals: list[ChainReport]
    faults: list[str]


class _Chain:
    """A chain, followed line by line."""

    def __init__(self) -> None:
        self.lines = 0
        self.unchained = 0
        self.first = 0
        self.since = ""
        self.last = 0
        self.complete = False
        self.hash: str | None = None

    def follow(self, line: bytes) -> str:
        """What is wrong with the next line, or ""."""
        try:
            given, entry = parse(line)
        except (ValueError, msgspec.MsgspecError):
            if self.hash is None and unchained(line):
                self.unchained += 1
                return ""
            return "the line is cut or altered: it cannot be read"
        begins = given == chain_hash(BEGIN, line[ENTRY_AT:-1])
        if self.hash is None:
            self.first, self.since, self.complete = entry.sequence, entry.at, begins
        elif given != chain_hash(self.hash, line[ENTRY_AT:-1]):
            if begins:
                return f"a new chain begins here, with sequence {entry.sequence} after {self.last}: the lines before were replaced"
            order = "after" if entry.sequence > self.last else "though it is not above"
            return (
                f"the line of sequence {entry.sequence} does not follow from the one before it, of sequence {self.last}: one of them was "
                f"altered, or lines between them were removed, inserted or moved ({entry.sequence} stands {order} {self.last})"
            )
        elif entry.sequence <= self.last:
            return f"sequence {entry.sequence} comes after {self.last}"
        self.hash, self.last = given, entry.sequence
        self.lines += 1
        return ""


def unchained(line: bytes) -> bool:
    """Whether the line is one of a version before the chain: an entry alone."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return isinstance(found, dict) and "hash" not in found and "sequence" in found


def lines_of(file: BinaryIO, size: int) -> Iterator[tuple[int, bytes, bool]]:
    """Where each line begins, the line, and whether it has its end; only of the first `size` bytes: more may be added meanwhile."""
    at = 0
    while at < size:
        line = file.readline(min(MAX_LINE, size - at))
        if not line:
            return
        yield at, line.removesuffix(b"\n"), line.endswith(b"\n")
        at += len(line)


def verify_journal(folder: Path, name: str) -> ChainReport:
    """The report on one journal: the older file, then the current one. Raises OSError for what cannot be read."""
    chain = _Chain()
    broken: Break | None = None
    paths = [path for path in (folder / (name + OLDER), folder / name) if path.exists()]
    opened = [path.open("rb") for path in paths]  # all at once: the current one may be rolled meanwhile
    try:
        sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
        for path, file, size in zip(paths, opened, sizes, strict=True):
            for number, (at, line, ended) in enumerate(lines_of(file, size), 1):
                fault = chain.follow(line) if ended else ""
                if not ended and path != paths[-1]:
                    fault = "the file ends within a line"
                if fault:
                    broken = Break(path.name, number, at, fault)
                    break
            if broken is not None:
                break
    finally:
        for file in opened:
            file.close()
    older_is_missing = chain.lines > 0 and not chain.complete and not (folder / (name + OLDER)).exists()
    if broken is None and older_is_missing:
        broken = Break(
            name, 1, 0, f"lines before sequence {chain.first} are missing: {name}{OLDER} is gone, or the first lines were removed"
        )
    return ChainReport(
        name, broken is None, chain.lines, chain.unchained, chain.first, chain.since, chain.last, chain.complete, broken
    )  # fmt: skip


def verify_audit(folder: Path, sequence: int = 0) -> AuditReport:
    """The report on the state directory `folder`; `sequence` is that of the last change, as `state.json` has it. Raises OSError."""
    reports = [verify_journal(folder, name) for name in (FILE, REFUSALS)]
    faults = [
        f"{each.broken.file}, line {each.broken.line} (byte {each.broken.byte}): {each.broken.fault}" for each in reports if each.broken
    ]
    history = reports[0]
    if history.broken is None and history.last < sequence:
        faults.append(
            f"{FILE} ends with sequence {history.last}, but the last change is of sequence {sequence}: lines at its end are missing"
        )
    aside = sorted(path.name for path in folder.glob("*.jsonl*.damaged-*"))
    faults += [f"{name} was set aside at a start because its chain was broken; look at it, then move it elsewhere" for name in aside]
    return AuditReport(not faults, reports, faults)


def verify_state_directory(folder: Path) -> dict[str, Any]:
    """The report on a state directory, as JSON has it. Raises OSError where it cannot be read."""
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(folder))
    sequence = 0
    faults = []
    try:
        sequence = decode_state((folder / "state.json").read_bytes()).sequence
    except FileNotFoundError:
        pass  # nothing was ever changed
    except StateError as error:
        faults.append(f"state.json: {error}")
    report = verify_audit(folder, sequence)
    found: dict[str, Any] = msgspec.to_builtins(report)
    return {**found, "ok": report.ok and not faults, "faults": report.faults + faults}
