"""The evidence that a gateway does not get, for the quotas in force: from the night's files under STATE/nights.

`nightly` and `apply` publish a short form (`quota_gateways.LONG`). The night keeps the whole: `quotas.json`, as published, and
`applied.json`, the sha256 of what each gateway was given. Whether a night belongs to what is in force is told by these, not by its date
alone: a night may have been computed again, or taken back.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cli.exits import CommandError, spark_part
from common.failures import FAILED, USAGE
from limiter.quota_snapshot import Snapshot
from spark_jobs.nights.files import QUOTAS, Nights
from spark_jobs.nights.gateways import LONG, drop_long_evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def with_nights(live: Snapshot, state: str, conf: Sequence[str] = ()) -> tuple[Snapshot, str]:
    """`live` with the evidence of its night, and "" or a sentence why there is none. Raises CommandError where STATE cannot be read."""
    if live.date is None:
        return live, "the quotas in force name no night, so their 28 days cannot be looked up"
    with _nights(state, conf) as nights:
        kept, place = nights.read_snapshot(live.date, QUOTAS), nights.file(live.date, QUOTAS).shown
        if kept is None:
            return live, f"{place} is not there, so the 28 days of the quotas in force are not known"
        given = nights.read_applied(live.date).get("gateways")
        if live.sha256() not in {kept.sha256(), drop_long_evidence(kept).sha256(), *_sha256s(given)}:
            return live, f"{place} has other quotas than those in force (sha256 {live.sha256()}), so their 28 days are not known"
        return join_evidence(live, kept), ""


def is_short(snapshot: Snapshot) -> bool:
    """Whether a topic has outcomes of nights, and not those that a gateway does not get."""
    return any("nights7" in quota.evidence and not LONG & quota.evidence.keys() for quota in snapshot.quotas)


def join_evidence(live: Snapshot, kept: Snapshot) -> Snapshot:
    """`live`, each quota with the LONG evidence of `kept`: rates and shares stay those of this gateway."""
    whole = {(quota.protocol, quota.topic): quota.evidence for quota in kept.quotas}
    return replace(
        live,
        quotas=tuple(replace(quota, evidence=_join(quota.evidence, whole.get((quota.protocol, quota.topic), {}))) for quota in live.quotas),
    )


def _join(evidence: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    found = {**{name: whole[name] for name in sorted(LONG) if name in whole}, **evidence}
    if isinstance(found.get("bytes"), dict) and isinstance(whole.get("bytes"), dict):
        found["bytes"] = _join(found["bytes"], whole["bytes"])
    return found


def _sha256s(given: object) -> set[str]:
    each = given.values() if isinstance(given, dict) else ()
    return {str(one.get("sha256")) for one in each if isinstance(one, dict)}


@contextmanager
def _nights(state: str, conf: Sequence[str]) -> Iterator[Nights]:
    """The nights under STATE; where it is not of this machine, Spark runs meanwhile."""
    with spark_part():
        from spark_jobs.errors import EnvironmentFaultError
        from spark_jobs.sizing import UNKNOWN_BYTES, parse_conf_options
        from spark_jobs.storage.choice import storage_for
        from spark_jobs.storage.location import Location
    try:
        place, settings = Location.of("state", state), parse_conf_options(conf)
    except ValueError as error:
        raise CommandError(USAGE, str(error)) from None
    try:
        if place.is_local:
            yield Nights(storage_for(place), place)
            return
        from spark_jobs.session import spark_session

        with spark_session("local[1]", log_bytes=UNKNOWN_BYTES, conf=settings) as spark:
            yield Nights(storage_for(place, spark), place)
    except (OSError, EnvironmentFaultError) as error:
        raise CommandError(FAILED, f"--state: {error}") from None
