"""The files that make up a day of the access log.

    LOG/dt=2026-11-20/hr=05/GATEWAY-BOOT-000001.jsonl[.open|.gz|.zst] or .parquet     lines, by hour of UTC
    LOG/manifest/GATEWAY/dt=2026-11-20/hr=05.json                                     shipped or compacted files, with sizes and hashes

Open files are read, too: a gateway that crashed leaves whole lines in one and at most one torn line, which counts as corrupt. Of a
file in several forms one is read: compacted, compressed, closed, open, in this order. A compacted file that stands for several is read
in their place. A file that is renamed while the job looks is found under its new name. Run the job some minutes after midnight, when the
last files of the day are closed: a file that is still being written is hashed and read at different moments.

The driver reads no file of a bucket: hashes come from the manifest, or the store's own checksum stands there instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from common.log_files import manifest, names
from spark_jobs.errors import InsufficientInputError
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage, StoredFile

FORMS: Final = tuple(f".{form}" for form in names.BEST_FIRST)  # forms, best first: the first one that is there is read
LOOKS: Final = 3  # times to look again when a file vanishes between listing and hashing: one rename per file and day
READERS: Final = 8  # manifests read, and checksums asked for, at a time: each takes a store tens of milliseconds (a guess)


class StoredLogFile(NamedTuple):
    """One file: `name` under the log's location (with `/`), `form` of FORMS, `size` in bytes.

    `digest` is `sha256:…`, or the store's own checksum, or None. `lines` and `corrupt` (lines kept aside when it was compacted) are
    the manifest's, None and 0 without one.
    """

    location: Location
    name: str
    form: str
    size: int
    digest: str | None
    lines: int | None = None
    corrupt: int = 0

    def describe(self) -> dict[str, object]:
        """The file as the day's manifest and the snapshot list it: path, bytes, and `sha256` or `checksum`."""
        found: dict[str, object] = {"path": self.name, "bytes": self.size}
        if self.digest is not None and self.digest.startswith("sha256:"):
            found["sha256"] = self.digest.removeprefix("sha256:")
        else:
            found["checksum"] = self.digest
        return found


def list_log_files(log: Location, hours: Iterable[tuple[str, str]], storage: Storage) -> list[StoredLogFile]:
    """The files of `hours` (date and hour of UTC, as `Day.partitions`), sorted by name.

    Raises InsufficientInputError where there are none, and where a manifest names one that is absent or of another size.
    """
    wanted = {f"dt={date}/hr={hour}" for date, hour in hours}
    days = sorted({hour.partition("/")[0] for hour in wanted})
    for _ in range(LOOKS):
        try:
            shipped = _read_manifests(log, wanted, storage)
            entries = _choose_forms(log, days, wanted, shipped, storage)
            with ThreadPoolExecutor(READERS) as pool:
                found = list(pool.map(partial(_log_file, log, shipped=shipped, storage=storage), entries))
        except FileNotFoundError:
            continue
        _refuse_half_shipped(log, found, shipped)
        if not found:
            raise InsufficientInputError(f"no access log for {_span(days)}: no hr=HH/*.jsonl, .gz, .zst or .parquet under {log.shown}")
        return found
    raise InsufficientInputError(f"{log.shown}: files vanish while they are read; is the log being deleted?")


def _span(days: list[str]) -> str:
    dates = [day.removeprefix("dt=") for day in days]
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def form_of(name: str) -> str | None:
    return next((form for form in FORMS if name.endswith(form)), None)


def _choose_forms(
    log: Location, days: list[str], hours: set[str], shipped: dict[str, manifest.ManifestEntry], storage: Storage
) -> list[StoredFile]:
    """One file of each stem, in order of names."""
    best: dict[str, tuple[int, StoredFile]] = {}
    replaced = {f"{name.rpartition('/')[0]}/{strip_form(source)}" for name, file in shipped.items() for source in file.sources}
    for day in days:
        for entry in storage.files(log.child(day)):
            name = log.relative(entry.location)
            folder, _, file = name.rpartition("/")
            form = form_of(file)
            if folder not in hours or form is None or file.startswith((".", "_")):
                continue
            stem = name.removesuffix(form)
            rank = FORMS.index(form)
            if form != FORMS[0] and stem in replaced:
                continue
            if stem not in best or rank < best[stem][0]:
                best[stem] = (rank, entry)
    return sorted(entry for _, entry in best.values())


def strip_form(name: str) -> str:
    return name.removesuffix(form_of(name) or "")


def _log_file(log: Location, entry: StoredFile, shipped: dict[str, manifest.ManifestEntry], storage: Storage) -> StoredLogFile:
    name = log.relative(entry.location)
    form = form_of(name)
    assert form is not None, "only known forms are listed"
    known = shipped.get(name)
    if known is not None:
        return StoredLogFile(entry.location, name, form, entry.size, f"sha256:{known.sha256}", known.lines, known.corrupt)
    return StoredLogFile(entry.location, name, form, entry.size, storage.checksum(entry))


def _read_manifests(log: Location, hours: set[str], storage: Storage) -> dict[str, manifest.ManifestEntry]:
    """Name -> its entry in the manifests of `hours`. Raises InsufficientInputError for a file there that is no manifest."""
    folders = [entry.location for entry in storage.list(log.child(manifest.MANIFEST)) if entry.is_folder]
    wanted = [
        entry.location
        for folder in folders
        for day in sorted({hour.partition("/")[0] for hour in hours})
        for entry in storage.list(folder.child(day))
        if f"{day}/{entry.name.removesuffix('.json')}" in hours
    ]
    found: dict[str, manifest.ManifestEntry] = {}
    with ThreadPoolExecutor(READERS) as pool:
        for location, data in zip(wanted, pool.map(storage.read, wanted), strict=True):
            try:
                found |= manifest.read(data, "", 0).files
            except ValueError as error:
                raise InsufficientInputError(f"{location.shown}: no manifest of shipped files ({error})") from error
    return found


def _refuse_half_shipped(log: Location, found: list[StoredLogFile], shipped: dict[str, manifest.ManifestEntry]) -> None:
    sizes = {file.name: file.size for file in found}
    stems = {strip_form(file.name) for file in found}
    for name, known in sorted(shipped.items()):
        if name in sizes and sizes[name] != known.size:
            raise InsufficientInputError(f"{log.child(name).shown}: {sizes[name]} bytes, its manifest says {known.size}; ship it again")
        if strip_form(name) not in stems:
            raise InsufficientInputError(f"{log.child(name).shown}: its manifest names it and it is not there; ship it again")
