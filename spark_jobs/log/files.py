"""Which files a day of the access log is made of.

    LOG/dt=2026-11-20/hr=05/GATEWAY-BOOT-000001.jsonl[.open|.gz|.zst] or .parquet     lines, by hour of UTC
    LOG/manifest/GATEWAY/dt=2026-11-20/hr=05.json                                     what was shipped or compacted, with sizes and hashes

Open files are read, too: a gateway that crashed leaves whole lines in one and at most one torn line, which counts as corrupt. Where a
file lies there in several forms, one is read: compacted, compressed, closed, open, in this order; so is a compacted file that stands
for several. A file that is renamed while the job looks is found under its new name. Run the job some minutes after midnight, when the
last files of the day are closed: what is still being written is hashed and read at different moments.

Nothing of a bucket is read through the driver: hashes come from the manifest, or the store's own checksum stands there instead.
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

FORMS: Final = tuple(f".{form}" for form in names.BEST_FIRST)  # the first one that is there is read
LOOKS: Final = 3  # times to look again when a file vanishes between listing and hashing: one rename per file and day
READERS: Final = 8  # manifests read, and checksums asked for, at a time: each takes a store tens of milliseconds (a guess)


class StoredLogFile(NamedTuple):
    """One file: `name` under the log's location (with `/`), `form` of FORMS, `size` in bytes.

    `digest` is `sha256:…`, or what the store knows of it, or None. `lines` and `corrupt` (lines kept aside when it was compacted) are
    the manifest's, None and 0 without one.
    """

    location: Location
    name: str
    form: str
    size: int
    digest: str | None
    lines: int | None = None
    corrupt: int = 0

    def facts(self) -> dict[str, object]:
        """As the day's manifest and the snapshot list it: path, bytes, and `sha256` or `checksum`."""
        found: dict[str, object] = {"path": self.name, "bytes": self.size}
        if self.digest is not None and self.digest.startswith("sha256:"):
            found["sha256"] = self.digest.removeprefix("sha256:")
        else:
            found["checksum"] = self.digest
        return found


def files_of(log: Location, hours: Iterable[tuple[str, str]], storage: Storage) -> list[StoredLogFile]:
    """The files of `hours` (date and hour of UTC, as `Day.partitions`), sorted by name.

    Raises InsufficientInputError where there are none, and where a manifest names one that is absent or of another size.
    """
    wanted = {f"dt={date}/hr={hour}" for date, hour in hours}
    days = sorted({hour.partition("/")[0] for hour in wanted})
    for _ in range(LOOKS):
        try:
            shipped = _shipped(log, wanted, storage)
            entries = _entries(log, days, wanted, shipped, storage)
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


def _entries(
    log: Location, days: list[str], hours: set[str], shipped: dict[str, manifest.ManifestEntry], storage: Storage
) -> list[StoredFile]:
    """One file of each stem, in order of names."""
    best: dict[str, tuple[int, StoredFile]] = {}
    replaced = {f"{name.rpartition('/')[0]}/{form_free(source)}" for name, file in shipped.items() for source in file.sources}
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


def form_free(name: str) -> str:
    return name.removesuffix(form_of(name) or "")


def _log_file(log: Location, entry: StoredFile, shipped: dict[str, manifest.ManifestEntry], storage: Storage) -> StoredLogFile:
    name = log.relative(entry.location)
    form = form_of(name)
    assert form is not None, "only known forms are listed"
    known = shipped.get(name)
    if known is not None:
        return StoredLogFile(entry.location, name, form, entry.size, f"sha256:{known.sha256}", known.lines, known.corrupt)
    return StoredLogFile(entry.location, name, form, entry.size, storage.checksum(entry))


def _shipped(log: Location, hours: set[str], storage: Storage) -> dict[str, manifest.ManifestEntry]:
    """Name -> what the manifests of `hours` say of it. Raises InsufficientInputError for a manifest that is none."""
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
    stems = {form_free(file.name) for file in found}
    for name, known in sorted(shipped.items()):
        if name in sizes and sizes[name] != known.size:
            raise InsufficientInputError(f"{log.child(name).shown}: {sizes[name]} bytes, its manifest says {known.size}; ship it again")
        if form_free(name) not in stems:
            raise InsufficientInputError(f"{log.child(name).shown}: its manifest names it and it is not there; ship it again")
