"""The third-party suites, each at one version, and how each is led to its broker. Figures: measured 2026-11, 2 cores, RabbitMQ 3.10.8."""

from __future__ import annotations

from dataclasses import replace

from suites.go_suite import GoSuite
from suites.pytest_suite import PytestSuite
from suites.sides import PORT, Side


def _rabbitmq(side: Side) -> dict[str, str]:
    return {"RABBITMQ_HOST": side.address, "RABBITMQ_5672_TCP": str(PORT)}


def _amqpstorm(side: Side) -> dict[str, str]:
    account = {"AMQP_USERNAME": "guest", "AMQP_PASSWORD": "guest"}
    return account | {"AMQP_HOST": side.address, "AMQP_URI": f"{side.url}%2F", "AMQP_HTTP_URL": side.management_url}


def _amqp091_go(side: Side) -> dict[str, str]:
    return {"AMQP_URL": side.url, "RABBITMQ_RABBITMQCTL_PATH": str(side.broker.control_script())}


Suite = PytestSuite | GoSuite

AMQP091_GO = GoSuite(
    name="amqp091-go",
    module="github.com/rabbitmq/amqp091-go",
    version="v1.16.0",
    tests=277,
    passes=277,
    tags="integration",
    settings=_amqp091_go,
    requirements=("go.uber.org/goleak@v1.2.1",),  # 1.3 needs Go 1.20, and Debian 12 has 1.19
    left_out=("TestConnectionRecovery*",),  # close connections by a management API on port 15672 of localhost
)

# In `make test`: without the one test that opens and closes channels for 70 s, and one of 15 s that asks no broker.
QUICK: dict[str, Suite] = {
    "py-amqp": PytestSuite(
        name="py-amqp",
        project="amqp",
        version="5.4.2",
        tests=12,
        passes=12,
        config="setup.cfg",
        paths=("t/integration/test_rmq.py",),
        settings=_rabbitmq,
        requirements=("vine==5.1.0",),
        arguments=("-k", "not tls"),
        patience_s=60,
    ),
    "amqp091-go": replace(
        AMQP091_GO,
        tests=274,
        passes=274,
        # The last waits for each message for a time that a busy machine exceeds, also without a gateway.
        left_out=(
            *AMQP091_GO.left_out,
            "TestChannelCounterShouldNotPanicIssue136",
            "TestAllocatorReleasesKeepUpWith*",
            "TestCorruptedMessageIssue7",
        ),
    ),
}

SLOW: dict[str, Suite] = {
    "kombu": PytestSuite(
        name="kombu",
        project="kombu",
        version="5.7.0",
        tests=51,
        passes=51,
        config="setup.cfg",
        paths=("t/integration/test_py_amqp.py",),
        settings=_rabbitmq,
        requirements=("amqp==5.4.2", "vine==5.1.0"),
    ),
    "amqpstorm": PytestSuite(
        name="amqpstorm",
        project="AMQPStorm",
        version="3.1.4",
        tests=154,
        passes=152,  # two are about the management of the authors' own broker
        config="pyproject.toml",
        paths=("amqpstorm/tests/functional",),
        settings=_amqpstorm,
        requirements=("pamqp==4.0.1", "requests==2.34.2"),
        arguments=("--ignore=amqpstorm/tests/functional/ssl",),
        patience_s=600,
    ),
}

SUITES: dict[str, Suite] = QUICK | {AMQP091_GO.name: AMQP091_GO} | SLOW
