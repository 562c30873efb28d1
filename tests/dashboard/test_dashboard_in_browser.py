"""The dashboard as a person has it: a browser, a gateway with a flood, and what is done on the page (`scenarios.mjs`)."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import quote

import pika
import pytest
from pamqp import commands, frame

from support.brokers import stand_ins
from support.brokers.redis_server import RedisServer
from support.brokers.stand_ins import StandIn
from support.browser import chromium_program
from support.floods import AMQPFlood, RocketMQFlood
from support.gateways import Gateway, amqp_listener, command, limit_path
from support.processes import LOOPBACK, free_ports, wait_until
from support.terminals import Terminal

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HERE: Final = Path(__file__).parent
PICTURES: Final = os.environ.get("SLUICE_DASHBOARD_PICTURES", "")  # a folder that the documentation's pictures are written to
LONGEST_S: Final = 600  # seconds; a scenario on a busy machine
TOPIC: Final = "%2F/orders/order.created"
MANY: Final = 10_000
HOSTILE: Final = ["<img src=x onerror=alert(1)>", "\u202egnp.exe\u202c \u0634\u062d\u0646", "n" * 250, "a%2Fb{c}&amp;\u00e9\u4e2d"]
RULES: Final[list[dict[str, Any]]] = [  # so low that a flood is over it on a machine that has little time for it
    {
        "name": "amqp-topics",
        "match": {"protocol": "amqp"},
        "per": "topic",
        "limit": {"messages": "20/s"},
        "breaker": {"open_for": "0s"},
        "candidate": {"messages": "30/s"},
    }
]


class World:
    """A gateway before a stand-in broker, with tokens of each role."""

    def __init__(self, folder: Path, broker: StandIn, settings: Mapping[str, object] | None = None, protocol: str = "amqp") -> None:
        port = free_ports(1)[0]
        listener = {**amqp_listener(broker.address), "bind": f"{LOOPBACK}:{port}", "protocol": protocol}  # the same after a restart
        self.port = port
        self.broker = broker
        self.gateway = Gateway(folder, [listener], [{**RULES[0], "match": {"protocol": protocol}}], settings)
        self.stopped = 0  # the process of a worker, while it is
        self.other: World | None = None  # another gateway of its fleet
        self.floods = ExitStack()  # those that a scenario asks for
        self.gateway.start(within=90)
        self.tokens = {"admin": self.gateway.token}
        for name, role in (("ana", "operator"), ("team", "viewer")):
            made = self.gateway.request("POST", "/v1/tokens", {"name": name, "role": role})
            assert made.status in {200, 201}, made
            self.tokens[role] = made.json["token"]

    def publish(self, *keys: str) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(f"amqp://shop:secret@{LOOPBACK}:{self.port}/%2F"))
        channel = connection.channel()
        for key in keys:
            channel.basic_publish("orders", key, b"x")
        connection.close()

    def wait_for_refusals(self) -> None:
        def refused() -> bool:
            return any(item["refused_per_second"] for item in self.gateway.get("/v1/topics")["items"])

        wait_until(refused, within=60, what="a flood to be refused")

    def flood_what_was_calm(self) -> None:
        """A few messages a second for as many seconds as it takes to know what is usual, and then a flood."""
        place = f"/v1/series?range=15m&protocol=amqp&topic={quote(TOPIC.replace('created', 'calm'), safe='')}"

        def is_known() -> bool:
            self.publish("order.calm")
            points = self.gateway.get(place)["points"]["received"] or []
            return sum(bool(value) for value in points) >= 5

        wait_until(is_known, within=60, what="a few seconds of a calm topic")
        self.floods.enter_context(AMQPFlood(self.port, key="order.calm"))

    def bundle(self, program: str, *words: str) -> None:
        """Run the command that the page gives, as its reader would."""
        assert program == "sluice"
        made = self.gateway.directory / "bundle.tar.gz"
        self.gateway.cli(*words, "-o", str(made))
        with tarfile.open(made) as archive:
            names = {Path(name).name for name in archive.getnames()}
            content = b"".join(each.read() for member in archive if (each := archive.extractfile(member)) is not None)
        assert {"status.json", "config.json", "topics.json"} <= names, names
        assert self.gateway.token.encode() not in content

    def please(self, what: str) -> None:
        """What a scenario asks for from outside its page."""
        path = limit_path("amqp", "/", "orders", "order.created")
        if what == "change the limit":
            self.gateway.put(path, {"messages": "33/s", "reason": "somebody else"})
        elif what == "change it again":
            self.gateway.put(path, {"messages": "44/s", "reason": "once more"})
        elif what == "limit its bytes, too":
            self.gateway.put(path, {"messages": "44/s", "bytes": "1MiB/s", "reason": "large messages"})
        elif what == "take it back":
            assert self.gateway.request("DELETE", f"{path}?force=1").status == 200
        elif what == "flood a topic that was calm":
            self.flood_what_was_calm()
        elif what == "hold a topic":
            self.gateway.put(path.replace("created", "held"), {"messages": "10/s", "action": "delay", "reason": "to be looked at"})
            self.floods.enter_context(AMQPFlood(self.port, key="order.held", user="billing", confirms=False))
        elif what == "try a limit":
            self.gateway.put(path.replace("created", "tried"), {"messages": "2/s", "mode": "shadow", "reason": "to be looked at"})
            self.floods.enter_context(AMQPFlood(self.port, key="order.tried", messages=1, user="mailer"))
        elif what == "block the broker":
            self.broker.tell(frame.marshal(commands.Connection.Blocked("low on memory"), 0))
        elif what == "unblock the broker":
            self.broker.tell(frame.marshal(commands.Connection.Unblocked(), 0))
        elif what == "flood harder":
            for _ in range(3):
                self.floods.enter_context(AMQPFlood(self.port, messages=100))
        elif what == "connect with hostile names":
            user = pika.PlainCredentials("<img src=x onerror=alert(2)>", "secret")
            for name in HOSTILE:
                named = pika.ConnectionParameters(LOOPBACK, self.port, credentials=user, client_properties={"connection_name": name})
                self.floods.callback(pika.BlockingConnection(named).close)
        elif what == "publish once to order.quiet":
            self.publish("order.quiet")
            wait_until(lambda: self.gateway.get("/v1/topics?q=order.quiet")["total"] == 1, within=60, what="the topic to be known")
        elif what == "publish to a long name":
            self.publish(f"devices.{'temperature.' * 12}the-end-of-it")
        elif what == "publish quotas":
            for rate in (15, 12):
                self.gateway.put("/v1/quotas", snapshot(rate))
            self.gateway.put("/v1/quotas/shadow", snapshot(18))
        elif what == "publish other quotas":
            assert self.gateway.request("PUT", "/v1/quotas?force=1&reason=the%20other%20operator", snapshot(13)).status == 200
        elif what == "raise the limit in the file":
            self.gateway.write_rules([{**RULES[0], "limit": {"messages": "25/s"}}])
        elif what == "break the file":
            self.gateway.write_rules([{**RULES[0], "limit": {"messages": "1O/s"}}])
        elif what == "stop a worker":
            self.stopped = int(self.gateway.get("/v1/status")["workers"][1]["pid"])
            os.kill(self.stopped, signal.SIGSTOP)
        elif what == "let the worker go on":
            os.kill(self.stopped, signal.SIGCONT)
        elif what == "stop the other gateway":
            assert self.other is not None
            self.stopped = self.other.gateway.process.pid
            os.kill(self.stopped, signal.SIGSTOP)
        elif what == "let the other gateway go on":
            os.kill(self.stopped, signal.SIGCONT)
        elif what.startswith("run "):
            self.bundle(*shlex.split(what)[1:])
        elif what == "stop":
            self.gateway.stop()
        elif what == "start as another version":
            with another_version(self.gateway.directory / "another-version"):
                self.gateway.start(within=90)
        elif what == "start":
            self.gateway.start(within=90)
        else:
            raise AssertionError(what)


@contextmanager
def another_version(folder: Path) -> Iterator[None]:
    """What is started meanwhile is this source tree with another word on the dashboard."""
    for name in ("admin", "cli", "common", "config", "control_plane", "gateway", "limiter", "spark_jobs"):
        shutil.copytree(HERE.parents[1] / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    words = folder / "admin/dashboard/messages/en.js"
    text = words.read_text()
    assert text.count('overview: "Overview"') == 1
    words.write_text(text.replace('overview: "Overview"', 'overview: "Overview of the second"'))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLUICE_COMMAND", shlex.join(["env", f"PYTHONPATH={folder}", sys.executable, "-m", "cli.main"]))
        yield


def snapshot(rate: int) -> dict[str, object]:
    quota = {
        "protocol": "amqp", "topic": TOPIC, "messages": {"rate": rate, "burst": rate},
        "evidence": {"status": "steady", "reason": "as much on each day", "days": [rate, rate + 1, rate - 1]},
    }  # fmt: skip
    return {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "0.1.0", "quotas": [quota]}


@contextmanager
def made(folder: Path, settings: Mapping[str, object] | None = None, protocol: str = "amqp") -> Iterator[World]:
    with stand_ins.rabbitmq() if protocol == "amqp" else stand_ins.rocketmq() as broker:
        world = World(folder / "gateway", broker, settings, protocol)
        try:
            yield world
        finally:
            world.floods.close()
            if world.gateway.alive():
                assert world.gateway.stop(within=60) == 0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with made(tmp_path) as world:
        yield world


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """For what changes nothing: a gateway takes a second of processor time to start."""
    with made(tmp_path_factory.mktemp("shared")) as world:
        yield world


class Browser:
    """Node and a Chromium, which take 2 CPU-s to start, play one scenario after the other. After one that fails they are started anew."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def started(self) -> subprocess.Popen[str]:
        if self._process is None:
            node = shutil.which("node")
            assert node is not None, "no node: run `sh deploy/system-packages.sh node`"
            assert (HERE / "node_modules").is_dir(), "no playwright-core: run `make dashboard-tests`"
            words = [node, str(HERE / "scenarios.mjs"), chromium_program()]
            self._process = subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def play(self, given: Mapping[str, Any], world: World) -> list[str]:
        """The figures that the scenario tells. Raises AssertionError where it does not hold."""
        process = self.started()
        timer = threading.Timer(LONGEST_S, process.kill)
        timer.start()
        figures: list[str] = []
        outcome = "it ended without an outcome"
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(given), file=process.stdin, flush=True)
            for line in process.stdout:
                word, _, rest = line.strip().partition(" ")
                if word == "please":
                    world.please(rest)
                    print("done", file=process.stdin, flush=True)
                elif word == "figures":
                    figures.append(rest)
                else:
                    outcome = line.strip()
                    break
        finally:
            timer.cancel()
            if outcome != "held":
                process.kill()
                self.end()
        assert outcome == "held", outcome
        return figures

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


BROWSER: Final = Browser()


@pytest.fixture(scope="module", autouse=True)
def _the_browser_ends() -> Iterator[None]:
    yield
    BROWSER.end()


def play(scenario: str, world: World, **more: Any) -> list[str]:
    """Run a scenario to its end; the figures that it tells."""
    given = {
        "scenario": scenario, "admin": world.gateway.admin, "tokens": world.tokens, "topic": TOPIC,
        "pictures": PICTURES, "hostile": [f"%2F/orders/{quote(key, safe='')}" for key in HOSTILE], **more,
    }  # fmt: skip
    return BROWSER.play(given, world)


def play_with_a_flood(scenario: str, world: World, record_property: Any) -> None:
    with AMQPFlood(world.port), AMQPFlood(world.port, key="order.slow", messages=1):
        world.wait_for_refusals()
        for figure in play(scenario, world):
            record_property(scenario, figure)
            print(figure)


def rarely(*scenarios: str) -> list[Any]:
    """What few people meet, or another scenario shows in a like place: `make test-long`."""
    return [pytest.param(scenario, marks=pytest.mark.long) for scenario in scenarios]


@pytest.mark.parametrize(
    "scenario",
    [
        "sign_in", "numbers_move", "field_errors", "accessible", "widths_and_languages", "viewer", "addresses_and_size",
        "support_bundle", "no_such_page", "words_in_tables", "advice", "dead_worker", "retries",
        *rarely("pictures", "other_tab_signs_in", "sleeping_tab", "many_tabs"),
    ],
)  # fmt: skip
def test_what_changes_nothing(shared_world: World, scenario: str, record_property: Any) -> None:
    play_with_a_flood(scenario, shared_world, record_property)


@pytest.mark.parametrize(
    "scenario",
    [
        "change_a_limit", "lost_race", "keyboard_alone", "quotas_and_candidates", "configuration", "log_level",
        "tokens", "close_a_connection", "address_of_the_form", "undo_later", "presets", "scale_of_a_flood", "never_seen", "roll_back",
        "held_topic", "names_in_lists", "act_on_the_culprit",
        *rarely("lost_race_of_quotas", "left_while_applying", "wrong_clock_and_slow_port"),
    ],
)  # fmt: skip
def test_what_changes_something(world: World, scenario: str, record_property: Any) -> None:
    play_with_a_flood(scenario, world, record_property)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_the_link_that_a_terminal_shows(tmp_path: Path, workers: int) -> None:
    """As the tutorial has it: `sluice run`, a few messages, and the link in a browser."""
    port, admin = free_ports(2)
    with stand_ins.rabbitmq() as broker:
        words = ["run", "--protocol", "amqp", "--bind", f"{LOOPBACK}:{port}", "--upstream", broker.address, "--limit", "20/s"]
        settings = ["--admin-bind", f"{LOOPBACK}:{admin}", "--set", f"gateway.workers={workers}"]
        with Terminal([*command(), *words, *settings], cwd=tmp_path) as terminal:
            shown = terminal.read_until("sluice --help")
            (link,) = re.findall(r"^  dashboard   (\S+)$", shown, re.MULTILINE)
            World.publish(SimpleNamespace(port=port), "order.created")  # type: ignore[arg-type]
            url = f"http://{LOOPBACK}:{admin}"
            tokens = {"admin": (tmp_path / "state" / "admin.token").read_text().strip()}
            shop: Any = SimpleNamespace(gateway=SimpleNamespace(admin=url), tokens=tokens)
            play("link_of_the_terminal", shop, link=link.removeprefix(url))
            os.kill(terminal.popen.pid, signal.SIGINT)
            assert terminal.end() == 0


def test_the_gateway_is_restarted_under_an_open_page(world: World) -> None:
    with AMQPFlood(world.port):
        world.wait_for_refusals()
        play("restart", world)


@pytest.mark.long
def test_the_gateway_is_upgraded_under_open_pages(world: World) -> None:
    with AMQPFlood(world.port):
        world.wait_for_refusals()
        play("upgrade", world)


def test_a_worker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with made(tmp_path, {"gateway": {"name": "end-to-end", "state_directory": "state", "workers": 2}}) as world:
        play("missing_worker", world)


def test_a_fleet_is_summed_and_a_gateway_that_says_nothing_is_named(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as redis:

        def of_fleet(name: str) -> dict[str, object]:
            fleet = {"redis": {"url": redis.url, "name": "shop", "timeout": "200ms"}}
            return {"gateway": {"name": name, "state_directory": "state"}, "fleet": fleet}

        with made(tmp_path / "one", of_fleet("one")) as world, made(tmp_path / "other", of_fleet("other")) as other:
            world.other = other
            with AMQPFlood(world.port), AMQPFlood(other.port):
                world.wait_for_refusals()
                play("fleet", world)


def test_a_group_that_floods_is_limited_alone(tmp_path: Path) -> None:
    with made(tmp_path, protocol="rocketmq") as world, RocketMQFlood(world.port):
        world.wait_for_refusals()
        play("limit_a_group", world)


def test_new_points_are_joined_to_those_that_are_there(world: World) -> None:
    play("points_are_joined", world)


@pytest.mark.long
def test_ten_thousand_topics(world: World) -> None:
    for first in range(0, MANY, 1000):  # a client may use so many new names a second

        def are_known(first: int = first) -> bool:
            world.publish(*(f"many.{at:05}" for at in range(first, min(first + 1000, MANY))))
            total: int = world.gateway.get("/v1/topics?limit=1")["total"]
            return total >= min(first + 1000, MANY)

        wait_until(are_known, within=60, what="the topics to be known", every=1.0)
    for figure in play("ten_thousand_topics", world):
        print(figure)


def test_hostile_names(world: World) -> None:
    world.publish(*HOSTILE)
    wait_until(lambda: world.gateway.get("/v1/topics?limit=1")["total"] >= len(HOSTILE), within=60, what="the topics to be known")
    play("hostile_names", world)


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A page of another origin."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>elsewhere</title><body></body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_page_of_another_origin_can_neither_read_nor_write(world: World) -> None:
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            play("another_origin", world, elsewhere=f"http://localhost:{server.server_address[1]}/")
        finally:
            server.shutdown()
