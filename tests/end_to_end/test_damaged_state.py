"""What is wrong at the start keeps no traffic from passing: a state directory that is read-only or not ours, no token, few descriptors."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
import yaml
from pika.exceptions import NackError

from support.brokers.stand_ins import StandIn, rabbitmq
from support.gateways import Gateway, amqp_listener, limit_path
from support.processes import LOOPBACK, free_ports

TOKEN = "the-token-of-a-test-that-is-long-enough-0123456789"
LIMITED, FREE = "limited", "free"  # queues, by the default exchange


@pytest.fixture
def broker() -> Iterator[StandIn]:
    with rabbitmq() as running:
        yield running


def made(folder: Path, broker: StandIn, workers: int = 1) -> Gateway:
    settings = {"gateway": {"name": "end-to-end", "state_directory": "state", "workers": workers}}
    return Gateway(folder, [amqp_listener(broker.address, bind=f"{LOOPBACK}:{free_ports(1)[0]}")], [], settings)


@contextmanager
def disk(folder: Path) -> Iterator[None]:
    """A file system of its own at `folder`, which can be made read-only."""
    folder.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"this test mounts a tmpfs: run it as root ({done.stderr.strip()})")


def limit(gateway: Gateway, rate: str = "0/s") -> Any:
    return gateway.request("PUT", f"{limit_path('amqp', '/', 'amq.default', LIMITED)}?force=1", {"messages": rate})


def passes(gateway: Gateway, queue: str) -> bool:
    """Whether a message to the queue is confirmed."""
    bind = yaml.safe_load(gateway.config.read_text())["listeners"][0]["bind"]  # the API needs a token, which may be what is missing
    connection = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{bind}/%2F"))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"x")
    except NackError:
        return False
    finally:
        connection.close()
    return True


def warned(gateway: Gateway) -> list[str]:
    lines = map(json.loads, gateway.log().splitlines())
    return [str(line["detail"]) for line in lines if line["event"] == "state_warning"]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_read_only_state_directory_starts_with_what_is_there(tmp_path: Path, broker: StandIn, workers: int) -> None:
    with disk(tmp_path / "g" / "state"):
        with made(tmp_path / "g", broker, workers) as gateway:
            assert limit(gateway).status == 200
        mount("-o", "remount,ro", str(tmp_path / "g" / "state"))
        with made(tmp_path / "g", broker, workers) as gateway:
            assert [passes(gateway, queue) for queue in (LIMITED, FREE)] == [False, True]
            refused = limit(gateway, "5/s")
            assert (refused.status, refused.json["type"]) == (507, "urn:sluice:problem:not-stored")
            assert "it was read-only when the gateway started: Read-only file system" in refused.json["detail"]
            assert "make it writable, start the gateway again" in refused.json["detail"]
            status = gateway.get("/v1/status")
            assert (status["state"]["read_only"], status["state"]["live_changes_of_keys"]) == ("Read-only file system", 1)
            assert any("live changes cannot be stored" in warning for warning in status["warnings"])
            assert any("live changes cannot be stored" in warning for warning in warned(gateway))
            assert "sluice_state_read_only 1\n" in gateway.request("GET", "/metrics").text
            assert gateway.request("POST", "/v1/tokens", {"name": "ci", "role": "viewer"}).status == 507
            assert not passes(gateway, LIMITED)
        mount("-o", "remount,rw", str(tmp_path / "g" / "state"))
        with made(tmp_path / "g", broker, workers) as gateway:
            assert limit(gateway, "100/s").status == 200
            assert passes(gateway, LIMITED)
            assert "sluice_state_read_only 0\n" in gateway.request("GET", "/metrics").text


WITHOUT_RIGHTS = "-dac_override,-dac_read_search"  # of root: what files' modes forbid is forbidden to it, too


@pytest.mark.parametrize(
    ("shut", "workers"),
    [("not to be entered", 1), ("not to be made", 1), pytest.param("not to be read", 1, marks=pytest.mark.long), ("not to be read", 2)],
)
def test_a_state_directory_that_is_not_for_this_user_keeps_no_gateway_from_its_start(
    tmp_path: Path, broker: StandIn, shut: str, workers: int
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    state = tmp_path / "locked" / "state"
    bind, admin = (f"{LOOPBACK}:{port}" for port in free_ports(2))
    settings = {
        "gateway": {"name": "end-to-end", "state_directory": str(state), "workers": workers},
        "admin": {"bind": admin, "tokens": [{"name": "ci", "role": "admin", "file": str(tmp_path / "token")}]},
        "spool": {"directory": str(tmp_path / "spool")},
    }
    rules: list[dict[str, object]] = [{"name": "limited", "match": {"protocol": "amqp", "queue": LIMITED}, "limit": {"messages": "0/s"}}]
    under = ("setpriv", f"--bounding-set={WITHOUT_RIGHTS}", f"--inh-caps={WITHOUT_RIGHTS}")
    gateway = Gateway(tmp_path / "g", [amqp_listener(broker.address, bind=bind)], rules, settings, under=under)
    gateway.admin_port = int(admin.rpartition(":")[2])
    state.mkdir(parents=True)
    if shut == "not to be made":
        state.rmdir()
    if shut == "not to be read":
        (state / "state.json").write_text("{}")
        state.chmod(0o555)
    closed = {"not to be entered": state, "not to be made": state.parent, "not to be read": state / "state.json"}[shut]
    closed.chmod(0o000)
    try:
        with gateway:
            assert [passes(gateway, queue) for queue in (LIMITED, FREE)] == [False, True]
            assert any("cannot be read or made (Permission denied)" in warning for warning in warned(gateway))
            known = {"Authorization": f"Bearer {TOKEN}"}
            status = gateway.request("GET", "/v1/status", authorised=False, **known).json
            assert status["state"]["read_only"] == "Permission denied"
            path = f"{limit_path('amqp', '/', 'amq.default', FREE)}?force=1"
            refused = gateway.request("PUT", path, {"messages": "5/s"}, authorised=False, **known)
            assert (refused.status, refused.json["type"]) == (507, "urn:sluice:problem:not-stored")
            assert gateway.request("POST", "/v1/tokens", {"name": "x", "role": "viewer"}, authorised=False, **known).status == 507
    finally:
        closed.chmod(0o700)


def test_without_a_good_admin_token_traffic_is_served_and_it_is_told_and_a_lost_one_is_made_anew(tmp_path: Path, broker: StandIn) -> None:
    state = tmp_path / "g" / "state"
    token = state / "admin.token"
    with disk(state):
        with made(tmp_path / "g", broker) as gateway:
            assert limit(gateway).status == 200
            before = gateway.token
        for damage in ("empty", "a folder", "gone, and read-only"):
            token.unlink(missing_ok=True)
            if damage == "empty":
                token.touch(mode=0o600)
            elif damage == "a folder":
                token.mkdir()
            else:
                mount("-o", "remount,ro", str(state))
            with made(tmp_path / "g", broker) as gateway:
                assert [passes(gateway, queue) for queue in (LIMITED, FREE)] == [False, True], damage
                assert any("token of 'admin'" in warning and "not valid" in warning for warning in warned(gateway)), damage
                assert gateway.request("GET", "/v1/status", authorised=False).status == 401
            if damage == "a folder":
                token.rmdir()
        mount("-o", "remount,rw", str(state))
        with made(tmp_path / "g", broker) as gateway:
            assert gateway.token != before
            assert gateway.get("/v1/status")["state"]["read_only"] is None


def test_live_changes_whose_files_are_gone_are_those_of_the_history(tmp_path: Path, broker: StandIn) -> None:
    with made(tmp_path / "g", broker) as gateway:
        assert limit(gateway).status == 200
    for file in (tmp_path / "g" / "state").glob("state.json*"):
        file.unlink()
    with made(tmp_path / "g", broker) as gateway:
        assert not passes(gateway, LIMITED)
        assert any("was put together from the history" in warning for warning in warned(gateway))


def test_a_gateway_of_few_descriptors_says_so_and_is_administered(tmp_path: Path, broker: StandIn) -> None:
    """`ulimit -n 64`: one client has room, and the admin port answers whoever asks."""
    with Gateway(tmp_path, [amqp_listener(broker.address)], [], under=("prlimit", "--nofile=64:64")) as gateway:
        assert [gateway.answers("/livez") for _ in range(5)] == [True] * 5
        told = [json.loads(line) for line in gateway.log().splitlines() if '"few_open_files"' in line]
        assert [line["err"] for line in told] == ["the hard limit of open files is 64: room for 1 connections"]
