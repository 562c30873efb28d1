"""`sluice quotas nightly` against real admin APIs: run twice, cut off anywhere, gateways away, shadow nights, shares. The computation is
the test's; with the real one: `tests/spark_jobs/test_thirty_nights.py`.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from admin.endpoints.quotas import BODY_LIMIT
from cli.client import AdminClient
from cli.exits import CommandError
from common.failures import UNREACHABLE
from limiter.quota_snapshot import Quota, Snapshot, dump, load
from spark_jobs.backtest.nights import read_published
from spark_jobs.nights.gateways import LONG, PUBLISH_TIMEOUT_S, drop_long_evidence, merge_snapshots, read_gateway, split_by_pool
from spark_jobs.nights.night import Options, open_storages
from spark_jobs.storage.location import Location
from support.admin.admin_client import folder_in_memory
from support.admin.serving import Serving, serving
from support.models.quota_evidence import snapshot
from support.quota_weeks.states import keep_day, state_at

DATE = "2026-11-20"


class Night:
    """Gateways, folders, and a computation that says what the test wants."""

    def __init__(self, folder: Path, served: Serving, sluice: Any) -> None:
        self.folder = folder
        self._served = served
        self.sluice = sluice
        self.gateways = served.gateways
        self.ask = served.ask
        self.rates: dict[str, float] = {"orders": 100.0}
        self.evidence: dict[str, Any] = {}
        self.parameters: dict[str, Any] = {}
        self.computed: list[str] = []
        self.previous: list[Snapshot | None] = []
        self.codes: dict[str, int] = {}
        self.in_log: dict[str, dict[str, int]] = {gateway.gateway.name: {} for gateway in self.gateways}
        self.manifests = True  # of days without data
        self.after_computing: Callable[[], None] | None = None

    def compute(self, log: str, date: str, state: str, output: str, master: str, *, previous: str | None = None, **more: Any) -> int:
        self.computed.append(date)
        self.previous.append(None if previous is None else load(Path(previous).read_bytes()))
        if self.codes.get(date):
            return self.codes[date]
        day = Path(state) / f"dt={date}"
        day.mkdir(parents=True, exist_ok=True)
        if self.manifests:
            (day / "manifest.json").write_text(json.dumps({"gateways": self.in_log}))
        found = tuple(
            Quota("rocketmq", topic, (rate, int(rate) or 1), (rate * 1000, 5000), self.evidence) for topic, rate in self.rates.items()
        )
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        Path(output).write_bytes(dump(Snapshot(f"{date}T23:59:00Z", "1", parameters=self.parameters, quotas=found, date=date)))
        if self.after_computing:
            self.after_computing()
        return 0

    def run(self, *words: object, date: str = DATE) -> tuple[int, str]:
        """One `nightly`; its exit code and what it said."""
        places = ["--log", self.folder / "log", "--state", self.folder / "state"]
        ran = self.sluice("quotas", "nightly", *places, "--date", date, *self._served.options(), *words)
        return ran.code, ran.err

    def live(self, at: int = 0, path: str = "/v1/quotas") -> dict[str, float]:
        found = self.ask(at, "GET", path).json()["quotas"]
        return {each["topic"]: each["messages"]["rate"] for each in found}

    def kept(self, name: str, date: str = DATE) -> Path:
        return self.folder / "state" / "nights" / f"dt={date}" / name

    def revisions(self) -> list[int]:
        return [gateway.store.revision for gateway in self.gateways]


@pytest.fixture
def make(tmp_path: Path, sluice: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ExitStack() as stack:
        memory = stack.enter_context(folder_in_memory(tmp_path))

        def made(*names: str) -> Night:
            night = Night(memory, stack.enter_context(serving(memory, *(names or ("one",)))), sluice)
            monkeypatch.setattr("spark_jobs.commands.compute", night.compute)
            return night

        yield made


def test_a_night_publishes_and_a_second_run_changes_nothing(make: Any) -> None:
    night = make()
    code, said = night.run()
    assert (code, night.live()) == (0, {"orders": 100})
    assert "published at 1 gateway" in said
    assert night.kept("report.html").exists()
    assert f"report: {night.kept('report.html')}" in said
    before = (night.revisions(), night.kept("applied.json").read_bytes())
    code, said = night.run()
    assert (code, night.computed) == (0, [DATE])
    assert "nothing to do" in said
    assert (night.revisions(), night.kept("applied.json").read_bytes()) == before


def test_the_next_night_starts_from_what_is_live(make: Any) -> None:
    """Also where the numbers are the same: the date and the age of the quotas are fresh."""
    night = make()
    night.run()
    night.ask(0, "PUT", "/v1/quotas?force=1", {**json.loads(night.kept("quotas.json").read_text()), "quotas": []})
    night.ask(0, "POST", "/v1/quotas:rollback?force=1")
    code, _ = night.run(date="2026-11-21")
    assert (code, [each and len(each.quotas) for each in night.previous]) == (0, [None, 1])
    assert (night.ask(0, "GET", "/v1/quotas")).json()["computed_at"] == "2026-11-21T23:59:00Z"


def test_a_second_computation_of_a_night_takes_the_same_previous(make: Any) -> None:
    """findings 1.3: a night took its own output for the night before: 20, 40, 80."""
    night = make()
    night.rates = {"orders": 20}
    night.run(date="2026-11-19")
    night.rates = {"orders": 40}
    night.run()
    night.rates = {"orders": 80}
    code, said = night.run("--again")
    assert (code, night.live()) == (0, {"orders": 40}), said
    assert [each and each.quotas[0].messages[0] for each in night.previous] == [None, 20, 20]
    assert "held: rocketmq orders: messages would go from 20/s to 80/s, held at 40/s" in said
    assert load(night.kept("quotas.json").read_bytes()).quotas[0].messages == (40, 40)


def test_monday_after_a_quiet_week_end_is_published_as_computed(make: Any) -> None:
    """The job had railed it by the quota of a week ago, and the publication held it again, by Sunday's: 82/s instead of 100/s."""
    night = make()
    night.rates = {"orders": 41}
    night.run(date="2026-11-21")
    night.rates, night.evidence = {"orders": 100}, {"week_ago": 100, "bytes": {"week_ago": 100_000}}
    code, said = night.run(date="2026-11-22")
    assert (code, night.live()) == (0, {"orders": 100}), said
    assert "held" not in said.replace("0 held", "")


def test_a_topic_that_the_computation_held_is_counted_as_held(make: Any) -> None:
    """The same night said "1 held" of what it had computed and "0 held" of what it published."""
    night = make()
    night.evidence = {"status": "held", "reason": "held below 400/s by the rail of one night"}
    assert "1 quota of 2026-11-20, 1 changed, 1 held: published at 1 gateway" in night.run()[1]


def test_missed_days_are_computed_first_oldest_first(make: Any) -> None:
    night = make()
    for day in ("16", "17", "18", "19", "20", "21"):
        (night.folder / "log" / f"dt=2026-11-{day}").mkdir(parents=True)
    night.run(date="2026-11-17")
    night.codes["2026-11-18"] = 5
    night.computed.clear()
    code, said = night.run()
    assert (code, night.computed) == (0, ["2026-11-18", "2026-11-19", "2026-11-20"])
    assert "2026-11-18 is left out" in said
    night.codes["2026-11-21"] = 1
    assert (night.run(date="2026-11-21"))[0] == 1
    assert (night.ask(0, "GET", "/v1/quotas")).json()["computed_at"] == "2026-11-20T23:59:00Z"


def test_a_missed_day_that_a_later_night_computes_was_never_in_force(make: Any) -> None:
    night = make()
    for day in ("17", "18", "19"):
        (night.folder / "log" / f"dt=2026-11-{day}").mkdir(parents=True)
    night.run(date="2026-11-17")
    night.rates = {"orders": 110}
    night.run(date="2026-11-19")
    in_force = read_published(state_at(night.folder / "state"), "2026-11-19")
    assert in_force is not None
    assert (night.computed[1], in_force.date) == ("2026-11-18", "2026-11-17")


@pytest.mark.parametrize("code", [1, 5, 130])
def test_a_computation_that_fails_ends_the_night_with_its_code(make: Any, code: int) -> None:
    night = make()
    night.codes[DATE] = code
    assert (night.run())[0] == code
    assert night.revisions() == [0]
    night.codes.clear()
    assert (night.run())[0] == 0


def test_a_night_cut_off_before_publishing_is_finished_without_computing_again(make: Any) -> None:
    night = make()

    def crash() -> None:
        raise KeyboardInterrupt

    night.after_computing = crash
    assert night.run()[0] == 130
    night.after_computing = None
    code, _ = night.run()
    assert (code, night.computed, night.live()) == (0, [DATE], {"orders": 100})


def test_a_night_cut_off_while_publishing_is_finished(make: Any) -> None:
    """After it was published at the first gateway of a pool; the second run is held by the same rails."""
    night = make("one", "two")
    for gateway in night.gateways:
        gateway.gateway.fleet = {"redis": "redis://r", "name": "f"}
    night.run(date="2026-11-19")
    night.rates = {"orders": 900}
    night.run()
    night.kept("applied.json").unlink()
    night.ask(1, "POST", "/v1/quotas:rollback?force=1")
    assert (night.live(0), night.live(1)) == ({"orders": 200}, {"orders": 100})
    revision = night.gateways[0].store.revision
    assert (night.run())[0] == 0
    assert (night.live(0), night.live(1)) == ({"orders": 200}, {"orders": 200})
    assert night.gateways[0].store.revision == revision


def test_quotas_that_somebody_took_back_are_not_published_again(make: Any) -> None:
    night = make()
    night.run(date="2026-11-19")
    night.rates = {"orders": 110}
    night.run()
    night.ask(0, "POST", "/v1/quotas:rollback?force=1")
    code, said = night.run()
    assert (code, night.live()) == (0, {"orders": 100})
    assert "changed since at one" in said
    assert (night.run("--again"))[0] == 0
    assert night.live() == {"orders": 110}


def test_a_night_begins_anew_where_the_quotas_were_changed_since(make: Any) -> None:
    night = make()
    night.run(date="2026-11-19")
    night.codes[DATE] = 1
    night.run()
    del night.codes[DATE]
    by_hand = Snapshot("2026-11-20T12:00:00Z", "hand", quotas=(Quota("rocketmq", "orders", (500.0, 500)),))
    night.ask(0, "PUT", "/v1/quotas?force=1", dump(by_hand))
    night.rates = {"orders": 900}
    code, said = night.run()
    assert (code, night.live()) == (0, {"orders": 900})
    assert "begins anew" in said


# ---- gateways -------------------------------------------------------------------------------------------------------


def test_a_gateway_away_ends_the_night_before_it_begins(make: Any) -> None:
    night = make("one", "two")
    code, said = night.run("--gateway", "http://127.0.0.1:1")
    assert (code, night.computed, night.revisions()) == (4, [], [0, 0])
    assert "http://127.0.0.1:1 cannot be reached" in said


def test_a_token_that_is_refused_is_a_gateway_away(make: Any, tmp_path: Path) -> None:
    night = make()
    (tmp_path / "wrong").write_text("wrong-token-0123456789")
    address = night.gateways[0].address
    code, said = night.run("--gateway", f"http://{address[0]}:{address[1]},{tmp_path / 'wrong'}")
    assert (code, night.computed) == (4, [])
    assert "401" in said


def test_published_at_all_gateways_or_at_none(make: Any) -> None:
    night = make("one", "two")
    night.run(date="2026-11-19")
    before = [night.live(at) for at in (0, 1)]
    night.rates = {"orders": 110}
    other = dump(Snapshot("2026-11-20T12:00:00Z", "hand", quotas=()))
    client = AdminClient("http://{}:{}".format(*night.gateways[1].address), night.gateways[1].token(), 10)

    def somebody_else() -> None:
        client.ask("PUT", "/v1/quotas", query={"force": "1"}, data=other)

    night.after_computing = somebody_else
    code, said = night.run()
    assert code == 4
    assert "two (http://" in said
    assert "has what it had before" in said
    assert (night.live(0), night.live(1)) == (before[0], {})
    assert not night.kept("applied.json").exists()


def test_gateways_that_limit_alone_share_by_demand_and_those_of_a_fleet_do_not(make: Any) -> None:
    night = make("one", "two", "three")
    for gateway in night.gateways[:2]:
        gateway.gateway.fleet = {"redis": "redis://r", "name": "f"}
    night.evidence = {"gateways": {"one": 0.5, "two": 0.3, "three": 0.2}}
    night.run(date="2026-11-19")
    assert [night.live(at) for at in range(3)] == [{"orders": 77}, {"orders": 77}, {"orders": 23}]
    night.rates = {"orders": 300}
    night.run()
    assert night.previous[-1].quotas[0].messages == (100, 100)
    assert [night.live(at) for at in range(3)] == [{"orders": 154}, {"orders": 154}, {"orders": 46}]


def test_the_quota_of_a_topic_stays_whole_where_a_gateway_goes() -> None:
    """The one that was left climbed from its share of 5 % by its rail, night by night."""
    groups: list[Any] = [[SimpleNamespace(name=name)] for name in ("one", "two", "three")]
    quota = Quota("rocketmq", "orders", (100.0, 1000), (1e6, 10_000_000), {"gateways": {"one": 0.9, "two": 0.05, "three": 0.05}})
    parts = split_by_pool(replace(snapshot(0), quotas=(quota,)), groups)
    assert parts[2].quotas[0].messages != quota.messages
    for left in (parts[1:], parts[2:]):
        [whole] = merge_snapshots(left).quotas
        assert (whole.messages, whole.bytes, whole.evidence) == (quota.messages, quota.bytes, quota.evidence)
    [alone] = split_by_pool(replace(snapshot(0), quotas=(quota,)), groups[:1])
    assert merge_snapshots([alone]) == alone


def test_gateways_that_limit_alone_under_one_name_are_refused(make: Any) -> None:
    """Two on one host, named after it: one got 95 % of each quota and the other 5 %, whatever came to each."""
    night = make("one", "two")
    night.gateways[1].gateway.name = "one"
    code, said = night.run()
    assert (code, night.computed) == (2, [])
    assert "are both called 'one', and share no Redis; give each a gateway.name of its own" in said
    for gateway in night.gateways:
        gateway.gateway.fleet = {"redis": "redis://r", "name": "f"}
    assert night.run()[0] == 0


def test_a_gateway_that_the_log_has_not_seen_gets_an_equal_share(make: Any) -> None:
    night = make("one", "two", "new")
    night.evidence = {"gateways": {"one": 0.75, "two": 0.25}}
    del night.in_log["new"]
    night.gateways[2].gateway.uptime_s = 60
    assert night.run()[0] == 0
    assert [round(night.live(at)["orders"]) for at in range(3)] == [48, 19, 33]
    night.in_log["new"] = {}  # it was there, and nobody sent to it
    assert night.run(date="2026-11-21")[0] == 0
    assert [round(night.live(at)["orders"]) for at in range(3)] == [69, 26, 5]


def losing(monkeypatch: pytest.MonkeyPatch, url: str, fault: BaseException, *, arrives: bool, deaf: bool = False) -> None:
    """From now on the first publication at `url` ends with `fault`, after it arrived or before; `deaf`: nothing is answered then."""
    ask = AdminClient.ask
    lost: list[str] = []

    def asked(client: AdminClient, method: str, target: str, **more: Any) -> Any:
        if client.url == url and lost and deaf:
            raise CommandError(UNREACHABLE, "no answer")
        if client.url != url or method != "PUT" or lost:
            return ask(client, method, target, **more)
        assert more["timeout_s"] == PUBLISH_TIMEOUT_S
        lost.append(method)
        if arrives:
            ask(client, method, target, **more)
        raise fault

    monkeypatch.setattr(AdminClient, "ask", asked)
    monkeypatch.setattr("spark_jobs.nights.gateways.LOOK_EVERY_S", 0)


@pytest.mark.parametrize("words", [(), ("--shadow-nights", 1)])
def test_a_publication_that_arrived_without_an_answer_is_done(
    make: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    night = make("one", "two")
    losing(monkeypatch, "http://{}:{}".format(*night.gateways[0].address), CommandError(UNREACHABLE, "no answer"), arrives=True)
    code, said = night.run(*words)
    assert (code, night.revisions()) == (0, [1, 1]), said
    assert "nothing to do" in night.run(*words)[1]


@pytest.mark.parametrize("deaf", [False, True])
def test_a_gateway_that_may_have_the_new_quotas_is_named(make: Any, monkeypatch: pytest.MonkeyPatch, *, deaf: bool) -> None:
    night = make("one", "two")
    url = "http://{}:{}".format(*night.gateways[1].address)
    losing(monkeypatch, url, CommandError(UNREACHABLE, "no answer"), arrives=deaf, deaf=deaf)
    code, said = night.run()
    assert (code, night.live(0), bool(night.live(1))) == (4, {}, deaf)
    assert "MAY HAVE THE NEW QUOTAS" in said
    assert "it may have them all the same, and it was taken back elsewhere" in said


@pytest.mark.parametrize("arrives", [False, True])
def test_an_interrupted_publication_is_taken_back(make: Any, monkeypatch: pytest.MonkeyPatch, *, arrives: bool) -> None:
    night = make("one", "two")
    losing(monkeypatch, "http://{}:{}".format(*night.gateways[1].address), KeyboardInterrupt(), arrives=arrives)
    code, said = night.run()
    assert (code, night.live(0), night.live(1)) == (130, {}, {})
    assert ("MAY HAVE" in said) is not arrives
    assert night.run()[0] == 0
    assert night.live(1) == {"orders": 50}


@pytest.fixture
def _pythons_own_interrupt() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt: a Spark session that other tests of this process share has a handler that would end it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_pythons_own_interrupt")
@pytest.mark.parametrize("ignoring", [False, True])
def test_sigterm_while_computing_leaves_a_night_that_goes_on(make: Any, *, ignoring: bool) -> None:
    """As systemd ends a unit; a shell's background ignores SIGINT."""
    night = make()
    night.after_computing = lambda: signal.raise_signal(signal.SIGTERM)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    if ignoring:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code, said = night.run()
    finally:
        signal.signal(signal.SIGINT, before[1])
    assert (code, night.live()) == (130, {})
    assert "run it again, and it goes on where it stopped" in said
    assert (signal.getsignal(signal.SIGTERM), night.kept("applied.json").exists()) == (before[0], False)
    night.after_computing = None
    assert night.run()[0] == 0
    assert (night.computed, night.live()) == ([DATE], {"orders": 100})


@pytest.mark.usefixtures("_pythons_own_interrupt")
@pytest.mark.parametrize("arrives", [False, True])
def test_sigterm_while_publishing_takes_back_what_was_published(make: Any, monkeypatch: pytest.MonkeyPatch, *, arrives: bool) -> None:
    night = make("one", "two")
    ask = AdminClient.ask
    url = "http://{}:{}".format(*night.gateways[1].address)
    ended: list[str] = []

    def asked(client: AdminClient, method: str, target: str, **more: Any) -> Any:
        mine = (client.url, method, ended) == (url, "PUT", [])
        if mine and not arrives:
            ended.append(target)
            signal.raise_signal(signal.SIGTERM)
        answer = ask(client, method, target, **more)
        if mine:
            ended.append(target)
            signal.raise_signal(signal.SIGTERM)
        return answer

    monkeypatch.setattr(AdminClient, "ask", asked)
    code, said = night.run()
    assert (code, night.live(0), night.live(1)) == (130, {}, {})
    assert "run it again, and it goes on where it stopped" in said
    assert night.run()[0] == 0
    assert (night.live(0), night.live(1)) == ({"orders": 50}, {"orders": 50})


def test_a_publication_larger_than_a_gateway_takes_is_said_as_that_and_sent_to_none(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """findings.md 8, 4: "cannot be reached: Broken pipe; is the gateway running", with exit 4, try again."""
    monkeypatch.setattr("spark_jobs.nights.gateways.MAX_PUBLISHED_BYTES", 1 << 20)
    night = make("one", "two")
    night.rates = {f"{'t' * 1000}{number}": 5.0 for number in range(1000)}
    code, said = night.run()
    assert (code, night.revisions()) == (1, [0, 0])
    assert re.search(r"the quotas for one .* are \d\.\d MiB \(1000 topics\), and a gateway takes 1 MiB: nothing was sent", said)


def test_a_publication_goes_compressed_and_as_it_is_to_a_version_before(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would take it for damaged JSON; it does not say that it takes gzip."""
    sent: list[tuple[bool, bytes]] = []
    ask = AdminClient.ask

    def recorded(self: AdminClient, method: str, target: str, **words: Any) -> Any:
        if method == "PUT":
            sent.append((words["gzip"], words["data"]))
        return ask(self, method, target, **words)

    monkeypatch.setattr(AdminClient, "ask", recorded)
    night = make("one")
    night.rates = {f"orders-{number}": 5.0 for number in range(500)}
    assert (night.run()[0], len(night.live())) == (0, 500)
    monkeypatch.setattr("admin.endpoints.quotas.ENCODINGS", ())
    night.rates["orders-0"] = 9.0
    assert (night.run(date="2026-11-21")[0], night.live()["orders-0"]) == (0, 9)
    (packed, first), (bare, second) = sent
    assert (packed, bare, len(load(gzip.decompress(first)).quotas), len(load(second).quotas)) == (True, False, 500, 500)
    assert len(first) * 10 < len(second)


def test_a_gateway_is_sent_its_topics_alone_and_at_most_two_megabytes() -> None:
    """As of 200,000 topics at 25 of 5,000 gateways each: a thousand topics, and the record of each one's share."""
    names = [f"gw-{at:02}" for at in range(50)]
    topics = 2000
    quotas = [
        replace(quota, evidence={**quota.evidence, "gateways": dict.fromkeys(names[at % 2 :: 2], 0.04)})
        for at, quota in enumerate(snapshot(topics).quotas)
    ]
    parts = split_by_pool(replace(snapshot(0), quotas=tuple(quotas)), [[SimpleNamespace(name=name)] for name in names])  # type: ignore[list-item]
    assert {len(part.quotas) for part in parts} == {topics // 2}
    assert len(dump(parts[0])) < 2_000_000
    assert len(gzip.compress(dump(parts[0]))) < 200_000


def test_of_what_is_live_at_many_gateways_the_same_evidence_is_kept_once(make: Any) -> None:
    """Five thousand gateways with a thousand topics each, and each topic at 25 of them."""
    night = make("one", "two", "three")
    night.evidence = dict(snapshot(1).quotas[0].evidence) | {"gateways": {"one": 0.6, "two": 0.3, "three": 0.1}}
    assert night.run()[0] == 0
    known: dict[tuple[str, str], dict[str, Any]] = {}
    clients = [AdminClient("http://{}:{}".format(*each.address), each.token(), 10) for each in night.gateways]
    read = [read_gateway(client, known) for client in clients]
    (one,), (two,), (three,) = (each.live.quotas for each in read)
    assert one.evidence is two.evidence is three.evidence is known["rocketmq", "orders"]
    assert one.messages != three.messages, "each has its own share"
    assert "share" not in one.evidence
    again = merge_snapshots([each.live for each in read]).quotas[0]
    assert again.messages == (100, 100)


def test_a_publication_has_one_hash_for_all_files_and_the_night_has_the_list() -> None:
    """findings.md 8, 4: 320 gateways with 288 files each were 17.7 MB of list."""
    files: list[dict[str, Any]] = [
        {"path": f"dt={DATE}/hr=00/gateway-{at:05}.jsonl", "sha256": "ab" * 32, "rows": 10, "corrupt": 1, "bytes": 100}
        for at in range(320 * 288)
    ]
    whole = snapshot(1)
    sent = drop_long_evidence(replace(whole, inputs=tuple(files)))
    (told,) = sent.inputs
    assert {name: told[name] for name in ("files", "rows", "corrupt", "bytes")} == {
        "files": len(files), "rows": 10 * len(files), "corrupt": len(files), "bytes": 100 * len(files),
    }  # fmt: skip
    assert drop_long_evidence(sent) == sent
    assert drop_long_evidence(whole).inputs == ()
    assert drop_long_evidence(replace(whole, inputs=tuple(files[1:]))).inputs[0]["sha256"] != told["sha256"]
    assert len(dump(sent)) < 10_000


def test_of_many_gateways_each_gets_only_its_topics_and_together_they_have_the_whole() -> None:
    """Thousands of gateways with all topics each could not be published; and the least share of so many is none."""
    names = [f"gw-{at:02}" for at in range(12)]
    pools_: list[Any] = [[SimpleNamespace(name=name)] for name in names]
    told: dict[str, dict[str, Any]] = {"everywhere": dict.fromkeys(names[:-1], 1 / 11), "alone": {"gw-03": 1.0}, "unknown": {}}
    everywhere, alone, unknown = (Quota("rocketmq", topic, (120.0, 1200), None, {"gateways": gateways}) for topic, gateways in told.items())
    whole = replace(snapshot(0), quotas=(everywhere, alone, unknown))
    parts = split_by_pool(whole, pools_, names[:-1])
    topics = [{quota.topic for quota in part.quotas} for part in parts]
    assert topics[3] == topics[11] == {"everywhere", "alone", "unknown"}, "of the last one the log knows nothing"
    assert all(of == {"everywhere", "unknown"} for at, of in enumerate(topics) if at not in {3, 11})
    for topic in ("everywhere", "alone", "unknown"):
        rates = [quota.messages[0] for part in parts for quota in part.quotas if quota.topic == topic and quota.messages]
        assert sum(rates) == pytest.approx(120, rel=1e-4)
        assert min(rates) > 4
    by_hand = replace(alone, evidence={**alone.evidence, "status": "pinned"})
    assert all(part.quotas for part in split_by_pool(replace(whole, quotas=(by_hand,)), pools_, names)), "a pin holds everywhere"
    again = {quota.topic: quota for quota in merge_snapshots(parts).quotas}
    assert {topic: quota.messages for topic, quota in again.items()} == dict.fromkeys(again, (120, 1200))
    assert again["alone"].evidence == alone.evidence
    assert "gateways" not in again["everywhere"].evidence, "a list of thousands in each of thousands"
    lost = merge_snapshots([part if at != 3 else replace(part, quotas=()) for at, part in enumerate(parts)])
    (left,) = [quota.messages for quota in lost.quotas if quota.topic == "alone"]
    assert left is not None
    assert left[0] < 20, "what a gateway lost is not in force"


def test_a_ceiling_of_a_rule_below_a_pin_is_said_once_for_all_gateways(make: Any) -> None:
    night = make("one", "two")
    for at in range(2):
        roof = {"match": {"topic": "ord*"}, "limit": {"messages": "30/s"}, "ceiling": True}
        assert night.ask(at, "PUT", "/v1/rules/roof?force=1", roof).status == 200
    code, said = night.run()
    assert (code, "pinned" in said) == (0, False), "a learned quota below a ceiling is as it should be"
    night.evidence = {"status": "pinned", "reason": "pinned: contract"}
    code, said = night.run(date="2026-11-21")
    told = [
        line for line in said.splitlines() if "1 of 1 quotas are pinned and do not hold: rules hold their topics lower (roof: 1)" in line
    ]
    assert (code, len(told), told[0].startswith("one (")) == (0, 1, True)


@pytest.mark.slow
def test_a_night_of_ten_thousand_topics_can_be_published(make: Any) -> None:
    """In short form, with the record of its share beside it; what is kept of the night is whole."""
    [sent, _] = split_by_pool(snapshot(1000), [[SimpleNamespace(name="gw-a")], [SimpleNamespace(name="gw-b")]])  # type: ignore[list-item]
    assert len(dump(sent)) / 1000 * 10_000 < BODY_LIMIT
    night = make()
    night.evidence = dict(snapshot(1).quotas[0].evidence)
    assert night.run()[0] == 0
    evidence = night.ask(0, "GET", "/v1/quotas").json()["quotas"][0]["evidence"]
    assert set(night.evidence) - set(evidence) == set(night.evidence["bytes"]) - set(evidence["bytes"]) == LONG
    assert load(night.kept("quotas.json").read_bytes()).quotas[0].evidence == night.evidence
    in_force = night.ask(0, "GET", "/v1/quotas/status").json()["published"]["sha256"]
    [applied] = json.loads(night.kept("applied.json").read_text())["gateways"].values()
    assert [applied["sha256"], *json.loads(night.kept("plan.json").read_text())["wanted"].values()] == [in_force, in_force]
    assert "nothing to do" in night.run()[1]


def test_a_gateway_whose_log_is_missing_ends_the_night_with_5(make: Any) -> None:
    night = make("one", "two")
    del night.in_log["two"]
    code, said = night.run()
    assert (code, night.revisions()) == (5, [0, 0])
    assert "nothing of two, which ran all day" in said
    night.in_log["two"] = {}
    assert night.run()[0] == 0, "its log was shipped"
    assert night.computed == [DATE, DATE]


def test_the_day_of_a_night_that_ended_with_5_is_computed_by_the_next_night(make: Any) -> None:
    """Its state lacked a gateway, and counted for 60 days as if it did not: the log that was shipped in the morning was never read."""
    night = make("one", "two")
    for day in (DATE, "2026-11-21"):
        (night.folder / "log" / f"dt={day}").mkdir(parents=True)
    mark = night.folder / "log" / "counted" / f"dt={DATE}.json"
    mark.parent.mkdir()
    mark.write_text("{}")
    del night.in_log["two"]
    assert night.run()[0] == 5
    assert not mark.exists()
    night.in_log["two"] = {}
    code, said = night.run(date="2026-11-21")
    assert (code, night.computed) == (0, [DATE, DATE, "2026-11-21"]), said


def test_a_night_of_the_past_is_computed_and_not_published_over_a_newer_one(make: Any) -> None:
    night = make()
    night.run(date="2026-11-21")
    night.rates = {"orders": 60}
    code, said = night.run()
    assert (code, night.live(), night.computed) == (3, {"orders": 100}, ["2026-11-21", DATE])
    assert "the quotas of 2026-11-21 are in force, and those of 2026-11-20 are older; --again publishes them" in said
    assert night.run("--again")[0] == 0
    assert night.live() == {"orders": 60}


def test_a_night_run_again_with_other_options_is_computed_again(make: Any) -> None:
    night = make()
    assert night.run("--dry-run", "--capacity", "500")[0] == 0
    assert night.run("--dry-run", "--capacity", "500", "--driver-memory", "2g")[0] == 0
    assert night.computed == [DATE]
    assert night.run("--capacity", "400")[0] == 0
    assert night.computed == [DATE, DATE]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--capacity", "300"), "capacity_messages 400, now 300"),
        ((), "capacity_messages 400, now None"),
        (("--capacity", "400", "--allow-partial"), "allow_partial False, now True"),
        (("--capacity", "400", "--exclude", "2026-11-20T10:00:00Z/2026-11-20T10:30:00Z:orders*"), "exclude None, now ["),
        (("--capacity", "400", "--max-ratio", "3"), "ratio 2.0, now 3.0"),
        (("--capacity", "400", "--no-return"), "return_margin 0.05, now None"),
        (("--capacity", "400", "--shadow-again"), "shadow_again False, now True"),
    ],
)
def test_options_that_a_finished_night_was_not_told_are_refused_or_taken(make: Any, words: tuple[str, ...], said: str) -> None:
    """findings.md 8, 7: --pins, --exclude and --allow-partial were left aside with exit 0."""
    night = make()
    assert night.run("--capacity", "400")[0] == 0
    assert night.run("--capacity", "400", "--driver-memory", "2g")[0] == 0, "which changes no quota"
    code, told = night.run(*words)
    assert (code, night.computed) == (2, [DATE])
    assert said in told
    assert "--again computes and publishes it anew" in told
    assert night.run(*words, "--again")[0] == 0
    assert night.run(*words)[0] == 0
    assert night.computed == [DATE, DATE]


def test_another_text_in_the_same_file_of_pins_is_another_option(make: Any, tmp_path: Path) -> None:
    night, pins = make(), tmp_path / "pins.yaml"
    pins.write_text("pins: [{protocol: rocketmq, topic: orders, messages: 5/s}]")
    assert [night.run("--pins", pins)[0] for _ in range(2)] == [0, 0]
    pins.write_text("pins: [{protocol: rocketmq, topic: orders, messages: 6/s}]")
    code, told = night.run("--pins", pins)
    assert (code, "pins_sha256" in told) == (2, True)


def test_a_finished_night_of_a_version_before_is_left_as_it_is(make: Any) -> None:
    night = make()
    night.run()
    kept = night.kept("applied.json")
    kept.write_text(json.dumps({name: value for name, value in json.loads(kept.read_text()).items() if name != "options"}))
    assert night.run("--capacity", "300")[0] == 0
    assert night.computed == [DATE]


def test_a_gateway_without_a_log_is_let_through_where_it_is_told_or_began_today(make: Any) -> None:
    night = make("one", "two")
    del night.in_log["two"]
    assert (night.run("--allow-partial"))[0] == 0
    night.gateways[1].gateway.uptime_s = 60
    assert (night.run(date="2026-11-21"))[0] == 0


# ---- rails, backtest, shadow, return ---------------------------------------------------------------------------------


def test_faults_of_the_whole_input_stop_the_night_with_3(make: Any) -> None:
    night = make()
    night.run(date="2026-11-19")
    night.rates = {}
    code, said = night.run()
    assert (code, night.live()) == (3, {"orders": 100})
    assert "all 1 quotas would be removed" in said
    assert b"all 1 quotas would be removed" in night.kept("report.html").read_bytes()
    (again,) = re.findall("^    (sluice quotas nightly .*)$", night.kept("report.md").read_text(), re.MULTILINE)
    words = shlex.split(again)
    assert words[3:7] == ["--log", str(night.folder / "log"), "--state", str(night.folder / "state")]
    assert words[-3:] == ["--date", DATE, "--again"]
    night.rates = {"orders": 100.0}
    assert night.sluice(*words[1:]).code == 0, "as the report has it"
    assert "Published at one. To go back to the quotas before" in night.kept("report.md").read_text().replace("**", "")


def test_a_capacity_far_below_what_is_live_is_reached_night_by_night(make: Any) -> None:
    """Once --max-total stopped the first night, and all after it."""
    night = make()
    night.rates = {f"orders-{number}": 100.0 for number in range(30)}
    night.run(date="2026-11-19")
    night.rates = dict.fromkeys(night.rates, 10.0)
    night.parameters = {"capacity_messages": 300, "capacity_bytes": 300_000}
    code, said = night.run()
    assert (code, set(night.live().values())) == (0, {50}), said
    assert "held: rocketmq orders-0: messages would go from 100/s to 10/s, held at 50/s" in said
    assert "lowers the sum of all messages rates from 3000 to 300 per second" in said
    assert "so it is 1500 this time" in said
    night.parameters = {}
    code, said = night.run(date="2026-11-21")
    assert (code, set(night.live().values())) == (3, {50}), "without a capacity it is a log that was not there"


def lets_pass(said: str) -> str:
    """The option that the sentence on the backtest names, with its value."""
    (found,) = re.findall(r"the quick backtest: .*look first at the report for the .*; (--max-would-refuse \d+) lets this pass", said)
    return str(found)


@pytest.mark.parametrize(("refused", "simple", "code"), [(900, 100, 3), (900, 500, 0), (400, 0, 0)])
def test_quotas_that_did_badly_out_of_sample_are_not_published(make: Any, refused: int, simple: int, code: int) -> None:
    night = make()
    night.evidence = {"nights7": {"offered": 10_000, "refused": refused, "yesterday_max": {"refused": simple}}}
    ended, said = night.run()
    assert (ended, bool(night.live())) == (code, code == 0)
    assert ("the quick backtest" in said) is (code == 3)
    needs = night.kept("report.md").read_text().partition("## What needs me?")[2].partition("## What will")[0]
    assert ("Nothing was published, and the quotas before stay in force: the quick backtest" in needs) is (code == 3)
    assert ("If nothing is done:" in needs) is (code == 3)
    if code == 3:
        assert lets_pass(said) in needs
        assert night.run(*lets_pass(said).split())[0] == 0


@pytest.mark.parametrize(("live", "rate", "code"), [(20, 40, 0), (60, 60, 0), (60, 40, 3)])
def test_quotas_that_refuse_less_than_those_that_did_badly_are_published(make: Any, live: float, rate: float, code: int) -> None:
    """The bad days of what is in force stopped the nights that would have raised it, for ever."""
    night = make()
    night.manifests, night.rates = False, {"orders": live}
    assert night.run(date="2026-11-17")[0] == 0
    for day in ("18", "19", "20"):
        keep_day(night.folder / "state", f"2026-11-{day}", {"orders": 100}, gateways=night.in_log)
    night.rates = {"orders": rate}
    night.evidence = {"nights7": {"offered": 10_000, "refused": 6000, "yesterday_max": {"refused": 0}}}
    ended, said = night.run()
    assert (ended, night.live()) == (code, {"orders": rate if code == 0 else live}), said
    assert ("the quotas in force refused 60.00%" in said) is (code == 3)


@pytest.mark.parametrize(
    ("days", "live", "rate", "parameters", "code"),
    [
        ({"18": 100, "19": 100, "20": 100}, None, 5, {}, 3),
        ({"18": 100, "19": 100, "20": 100}, 110, 60, {}, 3),
        ({"18": 100, "19": 100, "20": 100}, 20, 40, {}, 0),  # it was throttled, and grows by its rail
        ({"18": 100, "19": 3, "20": 100}, None, 5, {}, 0),  # one day that it suits
        ({"14": 3, "15": 3, "18": 100, "19": 100, "20": 100}, None, 5, {}, 0),  # a week-end's
        ({"18": 100, "19": 100, "20": 100}, None, 5, {"capacity_messages": 5}, 0),  # as somebody wants it
        ({}, None, 5, {}, 0),
    ],
)
def test_tonights_quotas_are_judged_on_the_last_days_before_they_are_published(
    make: Any, days: dict[str, float], live: float | None, rate: float, parameters: dict[str, Any], code: int
) -> None:
    """Only what earlier nights had published was judged; tonight's might refuse all, and were published. The day to come is a Saturday."""
    night = make()
    if live is not None:
        night.rates = {"orders": live}
        assert night.run(date="2026-11-13")[0] == 0
    for day, level in days.items():
        keep_day(night.folder / "state", f"2026-11-{day}", {"orders": level}, gateways=night.in_log)
    night.manifests, night.rates, night.parameters = False, {"orders": rate}, parameters
    ended, said = night.run()
    assert (ended, night.live()) == (code, {"orders": rate} if code == 0 else {} if live is None else {"orders": live}), said
    expected = "tonight's quotas would have refused" if days else "tonight's quotas were not judged on past days"
    assert expected in said.lower()
    assert ("the quick backtest: tonight's quotas" in said) is (code == 3)
    assert expected in night.kept("report.html").read_text().replace("&#x27;", "'").lower()
    assert len(json.loads(night.kept("plan.json").read_text())["judged"]) == len(days)
    if code == 3:
        assert night.run(*lets_pass(said).split())[0] == 0


def test_a_state_that_cannot_be_read_is_said_and_publishes(make: Any) -> None:
    night = make()
    code, said = night.run()
    assert (code, night.live()) == (0, {"orders": 100})
    assert "Tonight's quotas were not judged on past days: " in said
    assert "manifest.json: " in said


def test_the_first_nights_are_only_tried(make: Any) -> None:
    night = make()
    for day, trial in (("18", 1), ("19", 2)):
        night.rates = {"orders": 100 + trial}
        code, said = night.run("--shadow-nights", 2, date=f"2026-11-{day}")
        assert (code, night.live(), night.live(0, "/v1/quotas/shadow")) == (0, {}, {"orders": 100 + trial})
        assert f"night {trial} of 2" in said
        assert "nothing to do" in (night.run("--shadow-nights", 2, date=f"2026-11-{day}"))[1]
    assert night.previous[-1].quotas[0].messages[0] == 101
    code, said = night.run("--shadow-nights", 2)
    assert (code, night.live(), night.live(0, "/v1/quotas/shadow")) == (0, {"orders": 102}, {})
    assert (night.run("--shadow-nights", 2, date="2026-11-21"))[0] == 0
    assert night.live() == {"orders": 102}


def test_a_finished_trial_is_not_asked_again_where_its_quotas_are_taken_back(make: Any) -> None:
    night = make()
    night.run("--shadow-nights", 1, date="2026-11-18")
    assert night.run("--shadow-nights", 1, date="2026-11-19")[0] == 0
    assert night.live() == {"orders": 100}
    night.ask(0, "POST", "/v1/quotas:rollback?force=1")
    assert night.live() == {}
    for words, live in (
        (("--shadow-nights", 1, "--dry-run"), "would be published"),
        (("--shadow-nights", 1, "--shadow-again", "--dry-run"), "would be tried in shadow mode, night 1 of 1"),
        (("--shadow-nights", 2, "--dry-run"), "would be tried in shadow mode, night 1 of 2"),
        (("--shadow-nights", 1), "published at 1 gateway"),
    ):
        code, said = night.run(*words)
        assert (code, live in said) == (0, True), said
    assert night.live() == {"orders": 100}


def test_a_dry_run_finishes_no_trial(make: Any) -> None:
    night = make()
    night.run("--shadow-nights", 1, date="2026-11-19")
    assert "would be published" in night.run("--shadow-nights", 1, "--dry-run")[1]
    night.ask(0, "DELETE", "/v1/quotas/shadow?force=1")
    assert "night 1 of 1" in night.run("--shadow-nights", 1)[1]


def test_a_trial_is_over_where_another_gateway_did_not_take_its_quotas(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial goes on with what was tried, from its first night as the gateway counts; the next night publishes all the same."""
    night = make("one", "two")
    for day in ("17", "18"):
        night.run("--shadow-nights", 2, date=f"2026-11-{day}")
    losing(monkeypatch, "http://{}:{}".format(*night.gateways[1].address), KeyboardInterrupt(), arrives=False)
    assert night.run("--shadow-nights", 2, date="2026-11-19")[0] == 130
    assert (night.live(0), night.live(1)) == ({}, {})
    night.ask(1, "DELETE", "/v1/quotas/shadow?force=1")
    code, said = night.run("--shadow-nights", 2)
    assert (code, night.live(0), night.live(1)) == (0, {"orders": 50}, {"orders": 50}), said


def test_a_trial_that_went_badly_goes_on(make: Any) -> None:
    night = make()
    night.run("--shadow-nights", 1, date="2026-11-19")
    night.gateways[0].gateway.seen_topics = [
        {"protocol": "rocketmq", "topic": "orders", "operation": "produce", "received": 10_000, "shadow_refused": 3000}
    ]
    code, said = night.run("--shadow-nights", 1)
    assert (code, night.live()) == (0, {})
    assert "would have refused 30.00% since the last" in said


def test_quotas_are_published_with_the_bound_of_their_return(make: Any) -> None:
    night = make()
    night.evidence = {"nights7": {"offered": 10_000, "refused": 40}}
    night.run("--return-margin", 2)
    assert night.gateways[0].store.state.quotas.return_above_ppm == 24_000
    night.run("--no-return", date="2026-11-21")
    assert night.gateways[0].store.state.quotas.return_above_ppm is None


def test_what_somebody_has_lowered_stops_no_night_and_is_promised(make: Any) -> None:
    """A capacity that binds, or a pin, stopped every night from the second on, and the gateway put back the first after ten minutes."""
    night = make()
    night.manifests, night.rates = False, {"orders": 60}
    keep_day(night.folder / "state", DATE, {"orders": 100}, gateways=night.in_log)
    night.evidence = {"nights7": {"offered": 10_000, "refused": 4000, "yesterday_max": {"refused": 0}}}
    assert night.run()[0] == 3
    night.parameters = {"capacity_messages": 60}
    assert night.run("--again", "--dry-run")[0] == 0
    night.parameters, night.evidence = {}, {"status": "pinned", **night.evidence}
    assert night.run("--again", "--dry-run")[0] == 0
    night.evidence = {"status": "pinned"}
    assert night.run("--again", "--return-margin", 2)[0] == 0
    above = night.gateways[0].store.state.quotas.return_above_ppm
    assert above == pytest.approx(420_000, abs=5000), "of 100/s asked 60/s pass"


def test_a_dry_run_publishes_nothing(make: Any) -> None:
    night = make()
    code, said = night.run("--dry-run")
    assert (code, night.revisions()) == (0, [0])
    assert "dry run" in said
    assert (night.run())[0] == 0
    assert night.computed == [DATE]


def test_a_log_or_state_elsewhere_is_reached_through_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is that of the computation: opened before it, and given what it was told of memory and settings."""
    asked: list[Any] = []

    @contextmanager
    def session(master: str, **more: Any) -> Iterator[str]:
        asked.append((master, more["driver_memory"], more["conf"]))
        yield "spark"

    monkeypatch.setattr("spark_jobs.session.spark_session", session)
    monkeypatch.setattr("spark_jobs.storage.choice.storage_for", lambda place, spark=None: (place.shown, spark))
    told = {"driver_memory": "4g", "conf": ("spark.a=b",)}
    log, state = Location.of("log", "s3a://b/log"), Location.of("state", "/state")
    with open_storages(Options(log, state, DATE, compute=told)) as found:
        assert found == (("s3a://b/log", "spark"), ("/state", "spark"))
    assert asked == [("local[*]", "4g", {"spark.a": "b"})]


# ---- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--date", "20.11.2026"], 2, "not a day"),
        (["--date", "2026-02-30"], 2, "not a day"),
        (["--set", "time_zone=Nowhere"], 2, "time_zone"),
        (["--time-zone", "Nowhere"], 2, "time_zone"),
        (["--log", "ftp://x"], 2, "--log: ftp://x: unknown scheme ftp; known: "),
        (["--state", "s3://bucket/x"], 2, "unknown scheme s3; write s3a://"),
        (["--set", "x"], 2, "--set x: write it like"),
        (["--set", "no_such=1"], 2, "no_such: no such parameter; known: "),
        (["--set", "remember_days=many"], 2, "remember_days: 'many' is not a whole number"),
        (["--set", "remember_days=0"], 2, "remember_days: 0 is below 1"),
        (["--set", "remember_days=5000"], 2, "remember_days: 5000 is above 3660"),
        (["--set", "burst_seconds=31"], 2, "burst_seconds: 31 is above 30"),
        (["--set", "step_down_percent=0"], 2, "step_down_percent: 0 is below 1"),
        (["--set", "hysteresis_percent=-1"], 2, "hysteresis_percent: -1 is below 0"),
        (["--set", "target_refused_ppm=600000"], 2, "target_refused_ppm: 600000 is above 500000"),
        (["--target-refused-ppm", "600000"], 2, "600000 is not in the range 1<=x<=500000"),
        (["--target-refused-ppm", "1", "--set", "target_refused_ppm=2"], 2, "give one of the two"),
        (["--capacity", "0"], 2, "0 is not in the range x>=1"),
        (["--exclude", "2026-11-20T10:00:00Z/2026-11-20T10:30:00Z"], 2, "is not FROM/TO:TOPIC"),
        (["--exclude", "2026-11-20T10:30:00Z/2026-11-20T10:00:00Z:a"], 2, "it ends before it begins"),
        (["--exclude", "2026-11-20T10:00:00/2026-11-20T10:30:00:a"], 2, "--exclude"),
        (["--pins", "nowhere.yaml"], 1, "nowhere.yaml: No such file or directory"),
        (["--pins", "limits.txt"], 1, "--pins: write a list under the one key pins:; it is "),
        (["--driver-memory", "much"], 2, "--driver-memory: 'much' is no size; write it like 4g"),
        (["--conf", "memory=4g"], 2, "--conf: 'memory=4g' is no setting of Spark"),
        (["--report", "no/folder/report.html"], 2, "make it, or name another"),
        (["--max-ratio", "0.5"], 2, "0.5 is not in the range x>=1"),
        (["--return-margin", "101"], 2, "101.0 is not in the range 0<=x<=100"),
        (["--shadow-nights", "-1"], 2, "-1 is not in the range x>=0"),
        (["--gateway", "http://127.0.0.1:1"], 4, "http://127.0.0.1:1 cannot be reached: Connection refused; is the gateway running"),
        (["--gateway", "http://127.0.0.1:1,nowhere.token"], 2, "nowhere.token"),
        (["--again", "yes"], 2, "yes"),
    ],
)
def test_bad_options_are_one_line_with_the_way_out_and_nothing_is_written(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    """`--set remember_days=many` was "invalid literal for int()", and what is out of range was found after the night had begun."""
    night = make()
    monkeypatch.chdir(tmp_path)
    Path("limits.txt").write_text("- a\n")
    ended, told = night.run(*words)
    assert (ended, night.computed, night.revisions()) == (code, [], [0]), told
    line = " ".join(told.split())
    assert said in line
    assert "Traceback" not in told
    assert "invalid literal" not in told
    assert not (night.folder / "state").exists()


def test_a_report_that_cannot_be_written_does_not_end_a_night_that_is_over(make: Any, tmp_path: Path) -> None:
    night = make()
    code, said = night.run("--report", tmp_path)
    assert (code, night.live()) == (0, {"orders": 100})
    assert f"Is a directory; the report is at {night.kept('report.html')}" in said
