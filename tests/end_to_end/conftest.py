"""The real brokers, once for the whole run, and gateways in front of them.

RabbitMQ missing is a failure that says how to mend it. RocketMQ comes from Maven Central: where that cannot be reached its tests are
skipped, loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.clients.probes import Probe
from support.clients.programs import Program, RocketMQClient
from support.gateways import Gateway, StartGateway
from support.java import MavenUnreachableError


@pytest.fixture(autouse=True)
def no_client_outlives_its_test() -> Iterator[None]:
    with Program.none_outlives():
        yield


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield broker


@pytest.fixture(scope="session")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    try:
        broker = RocketMQ(tmp_path_factory.mktemp("rocketmq"), tls="permissive")
    except MavenUnreachableError as error:
        pytest.skip(f"ROCKETMQ IS NOT TESTED, its jars are not here and Maven Central cannot be reached: {error}")
    with broker:
        yield broker


@pytest.fixture(scope="session", params=["5", pytest.param("4", marks=pytest.mark.long)])
def rocketmq_client(request: pytest.FixtureRequest, rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> RocketMQClient:
    """The Java client, in the current version and, in `make test-long`, in the old one.

    `make test` sends every kind of request of the old one as well: test_rocketmq_suite, test_rocketmq_clients.
    """
    try:
        return RocketMQClient(request.param, tmp_path_factory.mktemp(f"client-{request.param}"), rocketmq.name_server)
    except MavenUnreachableError as error:
        pytest.skip(f"THE ROCKETMQ CLIENT {request.param} IS NOT TESTED, its jars cannot be fetched: {error}")


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """A function that starts gateways: `start_gateway(listeners, rules, **settings)`. At the end each must exit 0 on SIGTERM.

    It returns once the gateway is ready; with `until="/livez"` already when it serves, for one whose broker is not there.
    """
    with ExitStack() as running:

        def start(
            listeners: list[dict[str, object]],
            rules: list[dict[str, object]],
            *,
            until: str = "/readyz",
            under: Sequence[str] = (),
            **settings: object,
        ) -> Gateway:
            gateway = Gateway(tmp_path / f"gateway-{len(list(tmp_path.iterdir()))}", listeners, rules, settings, until, under=under)
            return running.enter_context(gateway)

        with Program.none_outlives():  # a client that is still connected when its gateway is stopped would only hold that up
            yield start


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Probe]]:
    """A function from the name of an AMQP library (`support.clients.probes.LIBRARIES`) to its probe; each is started once."""
    started: dict[str, Probe] = {}
    with ExitStack() as running:

        def find(library: str) -> Probe:
            if library not in started:
                started[library] = Probe(library, tmp_path_factory.mktemp(library))
                running.callback(started[library].close)
            return started[library]

        yield find
