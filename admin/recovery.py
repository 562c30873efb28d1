"""Recovery: find the state that holds at the start, and restore the old one when a new one could not be made durable."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from admin.files import DRAFT, FileSystem, previous
from admin.files import replace as replace_file
from admin.journal import FILE, Journal, JournalError
from admin.state import State, StateError, decode_state, encode_state, from_json


def open_journal(files: FileSystem, folder: Path, rotate_at: int, warnings: list[str], file: str = FILE) -> Journal:
    """A journal. A damaged file of it is set aside: limits are not in it, and must not wait for it. Raises OSError."""
    while True:
        try:
            journal = Journal(folder, files, rotate_at, file)
        except JournalError as error:
            aside = error.path.with_name(f"{error.path.name}.damaged-{hashlib.sha256(error.path.read_bytes()).hexdigest()[:12]}")
            error.path.rename(aside)
            warnings.append(f"{error}; the file is now {aside.name} and the history begins anew")
            continue
        if journal.repaired:
            warnings.append(f"the history ended with half a line ({journal.repaired} bytes), which was cut off")
        return journal


def load_state(files: FileSystem, path: Path, journal: Journal, warnings: list[str]) -> State:
    """The state that holds: the file's, or the previous one with the journal's changes since. Raises StateError with the way out.

    Adds to `warnings` every file that was missing or damaged.
    """
    before = previous(path)
    if not path.exists() and not before.exists():
        if journal.revisions():
            warnings.append(f"{path} is gone: no live change holds; the history in {path.parent} has the earlier ones")
        return State(revision=max(journal.revisions(), default=0), sequence=journal.sequence)
    try:
        state = decode_state(path.read_bytes())
        if not journal.voided(state.sequence):
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
            "Restore one of them from a backup, or move both aside to start without live changes (the configuration's rules hold then)"
        ) from error
    aside = _keep_aside(path)
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


def _keep_aside(path: Path) -> Path | None:
    """A copy of the damaged file for the operator, named after its content so that restarts do not multiply it."""
    try:
        data = path.read_bytes()
        aside = path.with_name(f"{path.name}.damaged-{hashlib.sha256(data).hexdigest()[:12]}")
        aside.write_bytes(data)
    except OSError:
        return None
    return aside


def _replay(state: State, journal: Journal) -> State:
    """`state` with the changes the journal has after it."""
    for revision in journal.revisions():
        entry = journal.entry(revision)
        if entry is None or entry.sequence <= state.sequence or revision != state.revision + 1:
            continue
        edits = [(change.target, from_json(change.target, change.after)) for change in entry.changes]
        state = replace(state.changed(edits), revision=revision, sequence=entry.sequence)
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
