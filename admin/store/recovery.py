"""Recovery: find the state that holds at the start, and restore the old one when a new one could not be made durable."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from admin.store.journal import FILE, Entry, Journal, JournalError
from admin.store.state import State, StateError, decode_state, encode_state, from_json
from common.durable_files import DRAFT, FileSystem, previous, write_file
from common.durable_files import replace as replace_file


def open_journal(
    files: FileSystem, folder: Path, rotate_at: int, warnings: list[str], file: str = FILE, *, read_only: bool = False
) -> Journal:
    """A journal. A damaged file of it is set aside: limits are not in it, and must not wait for it. Raises OSError.

    Where nothing can be set aside (`read_only`) there is none then, and none is written.
    """
    while True:
        try:
            journal = Journal(folder, files, rotate_at, file)
        except JournalError as error:
            if read_only:
                warnings.append(f"{error}; the history cannot be read, and cannot be set aside here")
                file = f"{file}{UNREADABLE}"
                continue
            aside = error.path.with_name(f"{error.path.name}.damaged-{hashlib.sha256(error.path.read_bytes()).hexdigest()[:12]}")
            error.path.rename(aside)
            warnings.append(f"{error}; the file is now {aside.name} and {ANEW}")
            continue
        if journal.repaired and not read_only:
            warnings.append(f"the history ended with half a line ({journal.repaired} bytes), which was cut off")
        return journal


ANEW: Final = "the history begins anew"
UNREADABLE: Final = ".unreadable"  # ends the name of a history that is not there, in place of one that cannot be read


def load_state(files: FileSystem, path: Path, journal: Journal, warnings: list[str]) -> State:
    """The state that holds: the file's, or the previous one with the journal's changes since; with both gone, the journal's changes.

    Raises StateError with the way out.

    Adds to `warnings` every file that was missing or damaged.
    """
    before = previous(path)
    if not path.exists() and not before.exists():
        return _from_journal(files, path, journal, warnings)
    try:
        state = decode_state(path.read_bytes())
        if not journal.voided(state.sequence):
            if journal.sequence < state.sequence and not any(ANEW in warning for warning in warnings):
                lost = "is gone or empty" if not journal.sequence else f"ends with line {journal.sequence}"
                warnings.append(
                    f"the history in {path.parent} {lost}, though the last change is of line {state.sequence}: limits hold, but earlier "
                    "revisions cannot be shown or restored; put the file back from a backup, or find out who emptied it"
                )
            return state
        fault = "its change was taken back, because the disk failed while it was made"
    except FileNotFoundError:
        fault = "it is gone"
    except StateError as error:
        fault = str(error)
    try:
        state = decode_state(before.read_bytes())
    except (OSError, StateError) as error:
        raise StateError(
            f"{path}: {fault}; and {before} cannot take its place: {error}. "
            "Restore one of them from a backup; or move both aside to take the live changes from the history, and the history "
            f"({FILE}, {FILE}.1) with them to start without any (the configuration's rules hold then)"
        ) from error
    aside = _keep_aside(files, path)
    state = _replay(state, journal)
    warnings.append(
        f"{path}: {fault}; revision {state.revision} was restored from {before.name} and the history"
        + (f", kept as {aside.name}" if aside else "")
    )
    try:
        replace_file(files, path, encode_state(state))
    except OSError as error:
        warnings.append(f"{path} cannot be written: {error.strerror}")
    return state


def _from_journal(files: FileSystem, path: Path, journal: Journal, warnings: list[str]) -> State:
    """The state of a journal whose state files are gone: each target as the last change has left it.

    A journal that does not reach back to the first revision knows nothing of targets that were changed before, and not since. Its last
    line may be of a change that the gateway did not live to make; one that was acknowledged is never missing.
    """
    revisions = journal.revisions()
    if not revisions:
        return State(sequence=journal.sequence)
    state = State()
    for revision in revisions:
        entry = journal.entry(revision)
        if entry is not None:
            state = _applied(state, entry)
    state = replace(state, sequence=journal.sequence)
    reach = "" if revisions[0] == 1 else f"; it begins with revision {revisions[0]}, so changes of before, if they held still, are lost"
    warnings.append(f"{path} is gone, and so is {previous(path).name}: revision {state.revision} was put together from the history{reach}")
    try:
        replace_file(files, path, encode_state(state))
    except OSError as error:
        warnings.append(f"{path} cannot be written: {error.strerror}")
    return state


def _applied(state: State, entry: Entry) -> State:
    """`state` after the change of a line of the journal. Raises StateError."""
    edits = [(change.target, from_json(change.target, change.after)) for change in entry.changes]
    return replace(state.changed(edits), revision=entry.revision, sequence=entry.sequence)


def _keep_aside(files: FileSystem, path: Path) -> Path | None:
    """A copy of the damaged file for the operator, named after its content so that restarts do not multiply it."""
    try:
        data = path.read_bytes()
        aside = path.with_name(f"{path.name}.damaged-{hashlib.sha256(data).hexdigest()[:12]}")
        write_file(files, aside, data, os.O_TRUNC)
    except OSError:
        return None
    return aside


def _replay(state: State, journal: Journal) -> State:
    """`state` with the changes the journal has after it."""
    for revision in journal.revisions():
        entry = journal.entry(revision)
        if entry is None or entry.sequence <= state.sequence or revision != state.revision + 1:
            continue
        state = _applied(state, entry)
    return state


def put_back(files: FileSystem, path: Path, failed: bytes) -> None:
    """Undo a replacement whose last step failed: give `path` its previous bytes again if it holds `failed`. Raises OSError."""
    if not path.exists() or path.read_bytes() != failed:
        return
    before = previous(path)
    if not before.exists():
        files.unlink(path)
    else:
        draft = path.with_name(path.name + DRAFT)
        files.unlink(draft)
        files.link(before, draft)
        files.rename(draft, path)
    files.sync_folder(path.parent)
