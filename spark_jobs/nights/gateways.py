"""The gateways that a night publishes to: their live quotas, each one's share, and a publication at all of them or at none.

**Pools.** Gateways with the same Redis (`fleet`) share one bucket for each topic: each of them gets the whole quota. Others limit alone.
N of them with the whole quota would admit N times as much, so pools share it by the demand that the log has seen at each of their
gateways (`evidence.gateways`). No pool gets less than FLOOR of a quota: traffic moves, and a gateway without a share would refuse it.
Floors come out of the other shares, so the shares are 1 together. A pool that the log has not seen at all gets an equal share.

**Short form.** A gateway gets the evidence without LONG: it has the limits and their reasons. The whole is in STATE/nights and in the
report.

A burst is shared as the rate is, down to the least that it must hold at once: one message, or the bytes of the largest one. So bursts of
bytes stay whole where the largest message is not known.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final, Protocol, overload

from common.failures import FAILED, UNREACHABLE, USAGE, Failure
from common.figures import pluralise
from limiter.quota_snapshot import MAX_PUBLISHED_BYTES, Quota, Snapshot, SnapshotError, dump, read_snapshot
from spark_jobs.nights.rails import DIMENSIONS, Pair, get_pair, is_pinned

FLOOR: Final = 0.05  # a pool's least share of a quota, or half of an equal one where that is less; a guess
FEW_POOLS: Final = (
    10  # pools; with more, one without demand for a topic gets no quota of it, and the rule of the file holds there (a guess)
)
# Members of the evidence: three quarters of 4.5 kB a topic, which no gateway reads.
LONG: Final = frozenset({"series", "nights28", "refused_hours"})
PUBLISH_TIMEOUT_S: Final = 60.0  # seconds for a publication, at least: a gateway takes seconds for 16 MiB (admin.snapshots)
LOOKS: Final = 5  # looks whether a publication without an answer has arrived
LOOK_EVERY_S: Final = 2.0
ENFORCE: Final = "enforce"
SHADOW: Final = "shadow"
PATHS: Final = {ENFORCE: "/v1/quotas", SHADOW: "/v1/quotas/shadow"}
RECORDS: Final = {ENFORCE: "published", SHADOW: "shadow"}  # the members of `GET /v1/quotas/status`


class ApiAnswer(Protocol):
    """An answer of the admin API."""

    @property
    def body(self) -> Any: ...

    @property
    def etag(self) -> str: ...


class ApiClient(Protocol):
    """A client of one gateway's admin API: `cli.client.AdminClient`. `ask` raises Failure."""

    url: str

    def ask(
        self, method: str, target: str, *, query: Mapping[str, str] | None = None, body: object = None, data: bytes | None = None,
        gzip: bool = False, if_match: str | None = None, timeout_s: float = 0,
    ) -> ApiAnswer: ...  # fmt: skip


@dataclass
class ReadGateway:
    """One gateway as it was read: `name` is its name in the log; gateways of one `pool` share their buckets."""

    client: ApiClient
    name: str
    pool: str
    uptime_s: float
    status: dict[str, Any]  # GET /v1/quotas/status
    etags: dict[str, str]  # ETags by mode
    live: Snapshot  # the one in force
    tried: Snapshot | None = None  # the one in shadow mode
    applied: str = ""  # sha256 of what this run has published

    @property
    def url(self) -> str:
        return self.client.url

    def record(self, mode: str) -> dict[str, Any] | None:
        """The record of its publication: sha256, date, at, nights."""
        found = self.status.get(RECORDS[mode])
        return found if isinstance(found, dict) else None

    def sha256s(self) -> list[str]:
        """The hashes of the quotas in force and of those in shadow mode; "" where there are none."""
        return [str((self.record(mode) or {}).get("sha256", "")) for mode in (ENFORCE, SHADOW)]

    def put(self, path: str, query: Mapping[str, str], snapshot: Snapshot, if_match: str | None = None) -> ApiAnswer:
        """Send it a snapshot, compressed where it says that it takes that: earlier versions do not."""
        packs = "gzip" in (self.status.get("encodings") or ())
        data = gzip.compress(dump(snapshot), mtime=0) if packs else dump(snapshot)
        return self.client.ask("PUT", path, query=query, data=data, gzip=packs, if_match=if_match, timeout_s=PUBLISH_TIMEOUT_S)

    def __repr__(self) -> str:
        return f"<ReadGateway {self.name} {self.url}>"


def read_gateway(client: ApiClient, known: dict[tuple[str, str], dict[str, Any]] | None = None) -> ReadGateway:
    """Read the quotas of one gateway. Raises Failure with its address. `known`: the evidence of each topic at gateways that were read
    before; equal evidence is kept once, as a topic is at many of them."""
    state = client.ask("GET", "/v1/status").body
    quotas = client.ask("GET", "/v1/quotas/status").body
    live, tried = client.ask("GET", PATHS[ENFORCE]), client.ask("GET", PATHS[SHADOW])
    fleet = state.get("fleet")
    pool = f"{fleet['redis']} {fleet['name']}" if isinstance(fleet, dict) else client.url
    try:
        snapshots = [read_snapshot(each.body) for each in (live, tried)]
    except SnapshotError as error:
        raise Failure(FAILED, f"{client.url}: its quotas cannot be read ({error}); are its sluice and this one of one version?") from None
    return ReadGateway(
        client, str(state.get("name")), pool, float(state.get("uptime_seconds") or 0), quotas, {ENFORCE: live.etag, SHADOW: tried.etag},
        _share_evidence(snapshots[0], {} if known is None else known), snapshots[1] if quotas.get("shadow") else None,
    )  # fmt: skip


def _share_evidence(snapshot: Snapshot, known: dict[tuple[str, str], dict[str, Any]]) -> Snapshot:
    """The snapshot without each quota's share, which is its gateway's own; evidence that equals that of `known` is the same object."""

    def kept(quota: Quota) -> Quota:
        evidence = {name: value for name, value in quota.evidence.items() if name != "share"}
        first = known.setdefault((quota.protocol, quota.topic), evidence)
        return replace(quota, evidence=first if first == evidence else evidence)

    return replace(snapshot, quotas=tuple(map(kept, snapshot.quotas)))


def group_by_pool(gateways: Sequence[ReadGateway]) -> list[list[ReadGateway]]:
    """The gateways, those together that share their buckets, in the order in which they were named."""
    found: dict[str, list[ReadGateway]] = {}
    for gateway in gateways:
        found.setdefault(gateway.pool, []).append(gateway)
    return list(found.values())


def refuse_one_name(groups: Sequence[Sequence[ReadGateway]]) -> None:
    """Raise Failure where gateways that limit alone have one name: the log cannot tell whose demand is whose, so one would get it all."""
    known: dict[str, ReadGateway] = {}
    for group in groups:
        for name, gateway in {each.name: each for each in group}.items():
            other = known.setdefault(name, gateway)
            if other is not gateway:
                raise Failure(
                    USAGE,
                    f"{other.url} and {gateway.url} are both called {name!r}, and share no Redis; give each a gateway.name of its own",
                )


# ---- shares ---------------------------------------------------------------------------------------------------------


def compute_shares(quota: Quota, place_of: Mapping[str, int], count: int, unseen: Sequence[int]) -> dict[int, float]:
    """The share (0 to 1, together 1) of each of `count` pools in a topic's quota, by the demand at its gateways; equal where that is
    unknown. `place_of`: gateway -> its pool.

    `unseen`: pools of whose gateways the log has no line. Their demand is not known, which is not no demand. Among many pools one
    without demand for the topic has no share, unless a person has pinned it: the least share of thousands would strangle a topic that
    moves there, and each of them would be sent all topics.
    """
    demand: dict[int, float] = {}
    for name, part in _inner(quota.evidence.get("gateways")).items():
        place = place_of.get(name)
        if place is not None and as_number(part) > 0:
            demand[place] = demand.get(place, 0.0) + as_number(part)
    equal, total = 1 / count, sum(demand.values())
    if not demand:
        return dict.fromkeys(range(count), equal)
    parts = dict.fromkeys(unseen, equal)
    for place, each in demand.items():
        parts[place] = (1 - equal * len(unseen)) * each / total
    if count <= FEW_POOLS or any(is_pinned(quota, dimension) for dimension in DIMENSIONS):
        parts = {place: parts.get(place, 0.0) for place in range(count)}
    floor = min(FLOOR, 0.5 / len(parts))
    return {place: floor + (1 - floor * len(parts)) * part for place, part in parts.items()}


class PoolSnapshots(Sequence[Snapshot]):
    """The snapshot of each pool, made when it is asked for: with all their evidence those of 5,000 gateways would be gigabytes."""

    def __init__(self, snapshot: Snapshot, parts: Sequence[tuple[array[int], array[float], array[int]]]) -> None:
        """`parts`: by pool, the places of its quotas, its share of each, and how many pools have one."""
        self._snapshot, self._parts = snapshot, parts

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, place: int) -> Snapshot: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Snapshot]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        quotas = self._snapshot.quotas
        own = (_make_part(quotas[at], share, pools) for at, share, pools in zip(*self._parts[place], strict=True))
        return replace(self._snapshot, quotas=tuple(own))


def split_by_pool(snapshot: Snapshot, groups: Sequence[Sequence[ReadGateway]], in_log: Iterable[str] = ()) -> Sequence[Snapshot]:
    """The snapshot that each pool gets, in its short form. `in_log`: gateways that the log has lines of, with or without demand."""
    snapshot = drop_long_evidence(snapshot)
    if len(groups) == 1:
        return [snapshot]
    seen = {*in_log, *(name for quota in snapshot.quotas for name in _inner(quota.evidence.get("gateways")))}
    place_of = {gateway.name: place for place, group in enumerate(groups) for gateway in group}
    unseen = [place for place, group in enumerate(groups) if not any(gateway.name in seen for gateway in group)]
    parts = [(array("l"), array("d"), array("l")) for _ in groups]
    for at, quota in enumerate(snapshot.quotas):
        shares = compute_shares(quota, place_of, len(groups), unseen)
        for place, share in shares.items():
            which, how_much, of = parts[place]
            which.append(at)
            how_much.append(share)
            of.append(len(shares))
    return PoolSnapshots(snapshot, parts)


def drop_long_evidence(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the LONG evidence, of messages and of bytes, and with one hash for the list of its files."""
    quotas = tuple(replace(quota, evidence=_drop_long(quota.evidence)) for quota in snapshot.quotas)
    return replace(snapshot, inputs=summarise_inputs(snapshot.inputs), quotas=quotas)


def summarise_inputs(inputs: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """One entry for all files: how many, their lines, and a hash of the list. 320 gateways write 92,000 files a day, whose list was
    larger than a gateway takes; the file of the night has it."""
    if not inputs or (len(inputs) == 1 and "files" in inputs[0]):
        return tuple(inputs)
    listed = json.dumps(list(inputs), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    sums = {name: sum(int(as_number(each.get(name))) for each in inputs) for name in ("rows", "corrupt", "bytes")}
    return ({"files": len(inputs), **sums, "sha256": hashlib.sha256(listed).hexdigest()},)


def encode_snapshot(snapshot: Snapshot, whose: str) -> bytes:
    """The snapshot as it is sent. Raises Failure where no gateway would take it: it would close the connection while it is being sent."""
    data = dump(snapshot)
    if len(data) > MAX_PUBLISHED_BYTES:
        raise Failure(
            FAILED,
            f"the quotas for {whose} are {len(data) / 2**20:.1f} MiB ({pluralise(len(snapshot.quotas), 'topic')}), and a gateway takes "
            f"{MAX_PUBLISHED_BYTES >> 20} MiB: nothing was sent. Fewer topics have a quota where min_active_days is more, or a rule's "
            "routing_key_words puts topics together",
        )
    return data


def _drop_long(evidence: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in evidence.items() if name not in LONG}
    if isinstance(found.get("bytes"), dict):
        found["bytes"] = _drop_long(found["bytes"])
    return found


def _make_part(quota: Quota, share: float, pools: int) -> Quota:
    """The quota of one pool of so many that have a part of it."""
    whole: dict[str, Any] = {name: list(pair) for name in DIMENSIONS if (pair := get_pair(quota, name)) is not None}
    known = quota.evidence if pools <= FEW_POOLS else {name: each for name, each in quota.evidence.items() if name != "gateways"}
    evidence = {**known, "share": round(share, 6), "whole": whole, "pools": pools}
    messages = _scale_pair(quota.messages, share, 1)
    largest = as_number(_inner(quota.evidence.get("bytes")).get("largest"))
    size = _scale_pair(quota.bytes, share, int(largest) or (quota.bytes[1] if quota.bytes else 0))
    return replace(quota, messages=messages, bytes=size, evidence=evidence)


def _scale_pair(pair: Pair, share: float, least: int) -> Pair:
    if pair is None:
        return None
    return float(f"{pair[0] * share:.6g}"), max(min(pair[1], least), ceil(pair[1] * share))


def merge_snapshots(snapshots: Sequence[Snapshot]) -> Snapshot:
    """The quotas of pools together: the one they were given shares of, or, where they disagree on it, the sum of their rates.
    Pools that have gone since took shares along: the quota of the topic is still the whole."""
    if len(snapshots) == 1:
        alone = snapshots[0]
        return replace(alone, quotas=tuple(_merge_parts([each], 1) if "whole" in each.evidence else each for each in alone.quotas))
    found: dict[tuple[str, str], list[Quota]] = {}
    for snapshot in snapshots:
        for quota in snapshot.quotas:
            found.setdefault((quota.protocol, quota.topic), []).append(quota)
    newest = max(snapshots, key=lambda each: each.computed_at)
    return replace(newest, quotas=tuple(_merge_parts(quotas, len(snapshots)) for quotas in found.values()))


def _merge_parts(parts: list[Quota], pools: int) -> Quota:
    evidence = {name: value for name, value in parts[0].evidence.items() if name not in {"share", "whole", "pools"}}
    told = parts[0].evidence.get("whole")
    agreed = (
        len(parts) == min(int(as_number(parts[0].evidence.get("pools"))) or pools, pools)
        and isinstance(told, dict)
        and all(part.evidence.get("whole") == told for part in parts)
    )
    pairs: dict[str, Pair] = {}
    for dimension in DIMENSIONS:
        value = _inner(told).get(dimension) if agreed else None
        if isinstance(value, list) and len(value) == 2:
            pairs[dimension] = (as_number(value[0]), int(as_number(value[1])))
            continue
        held = [pair for part in parts if (pair := get_pair(part, dimension)) is not None]
        pairs[dimension] = (float(f"{sum(rate for rate, _ in held):.6g}"), max(burst for _, burst in held)) if held else None
    return replace(parts[0], messages=pairs["messages"], bytes=pairs["bytes"], evidence=evidence)


# ---- publishing -----------------------------------------------------------------------------------------------------


@dataclass
class FleetPublication:
    """One snapshot on its way to all gateways."""

    mode: str  # ENFORCE or SHADOW
    reason: str
    return_above_ppm: int | None = None
    tell: Callable[[str], None] = print  # sentences for the person at the terminal
    undone: list[str] = field(default_factory=list)  # addresses of gateways that have their earlier quotas again
    _told: set[str] = field(default_factory=set)  # remarks of gateways

    def publish(self, groups: Sequence[Sequence[ReadGateway]], parts: Sequence[Snapshot]) -> None:
        """Publish each pool's part at every gateway of it that does not have it, or at none.

        Raises Failure that names the gateway that failed, and says which have their earlier quotas again, or could not get them, or may
        have the new quotas. Anything else that ends it, such as Ctrl-C, is raised after the same.
        """
        done: list[tuple[ReadGateway, str]] = []
        for group, snapshot in zip(groups, parts, strict=True):
            encode_snapshot(snapshot, f"{group[0].name} ({group[0].url})")  # before any of them has one
        for gateway, snapshot in ((gateway, snapshot) for group, snapshot in zip(groups, parts, strict=True) for gateway in group):
            try:
                sha256 = snapshot.sha256()
                if (gateway.record(self.mode) or {}).get("sha256") != sha256:
                    done.append((gateway, self._put(gateway, snapshot, sha256)))
                gateway.applied = sha256
            except Failure as error:
                raise self._take_all_back(gateway, error, done) from None
            except BaseException:
                lines = self._take_back(done)
                sha256 = snapshot.sha256()
                if all(each is not gateway for each, _ in done) and (gateway.record(self.mode) or {}).get("sha256") != sha256:
                    etag = self._find_published(gateway, sha256, looks=1)
                    lines += [_describe_unanswered(gateway)] if etag is None else self._take_back([(gateway, etag)])
                for line in lines:
                    self.tell(line)
                raise

    def _put(self, gateway: ReadGateway, snapshot: Snapshot, sha256: str) -> str:
        """The ETag of the quotas there. A publication without an answer may have arrived, so the gateway is asked."""
        query = {"reason": self.reason}
        if self.mode == ENFORCE and self.return_above_ppm is not None:
            query["return_above_ppm"] = str(self.return_above_ppm)
        path, match = PATHS[self.mode], gateway.etags[self.mode]
        try:
            answer = gateway.put(path, query, snapshot, match)
            self._tell_remarks(gateway, _inner(answer.body).get("remarks"))
            return answer.etag
        except Failure as error:
            if error.code != UNREACHABLE or isinstance(error.__context__, ConnectionRefusedError):
                raise  # it was answered, or never sent
            etag = self._find_published(gateway, sha256)
            if etag is None:
                raise Failure(error.code, str(error), [*error.lines, _describe_unanswered(gateway)], error.status) from None
            return etag

    def _tell_remarks(self, gateway: ReadGateway, remarks: object) -> None:
        """Tell what the gateway says of the quotas; the same of another one not again."""
        for said in (str(each) for each in remarks) if isinstance(remarks, list) else ():
            if said not in self._told:
                self._told.add(said)
                self.tell(f"{gateway.name} ({gateway.url}): {said}")

    def _find_published(self, gateway: ReadGateway, sha256: str, looks: int = LOOKS) -> str | None:
        """The ETag of these quotas at the gateway; None where it does not have them, or does not say."""
        for look in range(looks):
            if look:
                time.sleep(LOOK_EVERY_S)
            try:
                status = gateway.client.ask("GET", "/v1/quotas/status")
                if _inner(_inner(status.body).get(RECORDS[self.mode])).get("sha256") == sha256:
                    return status.etag if self.mode == ENFORCE else gateway.client.ask("GET", PATHS[self.mode]).etag
            except Failure:
                continue
        return None

    def _take_all_back(self, failed: ReadGateway, error: Failure, done: Sequence[tuple[ReadGateway, str]]) -> Failure:
        lines = [*self._take_back(done), *error.lines]
        said = "so it was taken back elsewhere" if done else "nothing was published"
        if _describe_unanswered(failed) in lines:
            said = f"it may have them all the same{', and it was taken back elsewhere' if done else ''}"
        message = f"{failed.name} ({failed.url}) did not take the quotas: {error}; {said}; run it again"
        return Failure(error.code, message, lines, error.status)

    def _take_back(self, done: Iterable[tuple[ReadGateway, str]]) -> list[str]:
        """Give these gateways their earlier quotas back; a line about each."""
        lines = []
        for gateway, etag in done:
            gateway.applied = ""
            try:
                self._restore(gateway, etag)
                self.undone.append(gateway.url)
                lines.append(f"{gateway.name} ({gateway.url}): has what it had before")
            except Failure as fault:
                lines.append(f"{gateway.name} ({gateway.url}): HAS THE NEW QUOTAS, and could not be given back the others: {fault}")
        return lines

    def _restore(self, gateway: ReadGateway, etag: str) -> None:
        reason = f"{self.reason}: taken back, another gateway did not take it"
        if self.mode == ENFORCE:
            gateway.client.ask("POST", "/v1/quotas:rollback", query={"reason": reason}, body={}, if_match=etag)
            if gateway.tried is not None:
                gateway.put(PATHS[SHADOW], {"reason": reason, "force": "1"}, gateway.tried)
        elif gateway.tried is None:
            gateway.client.ask("DELETE", PATHS[SHADOW], query={"reason": reason}, if_match=etag)
        else:
            gateway.put(PATHS[SHADOW], {"reason": reason}, gateway.tried, etag)


def _describe_unanswered(gateway: ReadGateway) -> str:
    return f"{gateway.name} ({gateway.url}): MAY HAVE THE NEW QUOTAS: it was sent them and did not answer; `sluice quotas status` says"


def as_number(value: object) -> float:
    """What JSON has there, 0 where it is no number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _inner(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
