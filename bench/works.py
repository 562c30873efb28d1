"""The pieces of work that the benchmark does, and what sluice is to reach in each.

Stand-ins: the backend is a C program that answers at once or only takes, so that nearly all that is measured is the proxy. Brokers: the
real RabbitMQ and RocketMQ, which fill two processors by themselves; there it counts what gets through.

Tried with these works until November 2026, without gain: reads of 64 or 128 KiB for streams; fewer events from the kernel at a time;
gcc's profiles (`-fprofile-use`), `-O3`, `-fno-plt`, hot functions side by side; huge pages under Python's heap; `recv` and `send` in place
of `read` and `write`; not asking a socket again that took only a part; templates for heartbeats.
"""

from __future__ import annotations

from typing import Final

from proxies import BROKERS, REFUSED
from records import BETTER, BUFFERS, LEVELS, NEVER, TLS, USUAL, Goal, Work

WITH_NEVER: Final = (*USUAL, NEVER)  # also with every batch over the limiter's thread
WITH_LEVELS: Final = ("direct", "relay", "haproxy", BUFFERS, "envoy", "sluice", LEVELS)
BLIND_OR_NOT: Final = ("haproxy", "envoy", "sluice")
WITHOUT_ENVOY: Final = ("direct", "haproxy", "sluice")
PAGES: Final = 3
REQUESTS: Final = "RocketMQ request/reply, 32 connections"
CONFIRMS: Final = "AMQP confirms, window 100, 32 connections"
IN_TURN: Final = f"{CONFIRMS}, two topics in turn"
MIXED_CONFIRMS: Final = "AMQP confirms, traffic, 32 connections"
MIXED_REQUESTS: Final = "RocketMQ request/reply, traffic, 64 connections"

LIKE_THE_BETTER: Final = Goal("cpu", 1.0, of=BETTER)
AS_MUCH: Final = Goal("rate", 1.0)


def of_haproxy(bound: float, with_levels: float | None = None) -> tuple[Goal, ...]:
    """Processor time at most `bound` times HAProxy's with its default buffers, whatever is cheaper; and so many with four levels."""
    first = Goal("cpu", bound)
    return (first,) if with_levels is None else (first, Goal("cpu", with_levels, through=LEVELS))


# Traffic as it is: fifty topics by Zipf's law, bodies of 50 to 2,000 bytes, properties as client libraries send them (`load/traffic.h`).
TRAFFIC: Final = (
    Work("AMQP stream, traffic", "amqp", "stream amqp {s} traffic", of_haproxy(0.65, 0.8), WITH_LEVELS),
    Work(MIXED_CONFIRMS, "confirms", "publish 32 {s} traffic 100 any acked", of_haproxy(0.8, 1.1), WITH_LEVELS),
    Work("AMQP deliveries, traffic", "deliveries", "drain amqp {s} 1", (), WITH_LEVELS),
    Work("RocketMQ stream, traffic", "rocketmq", "stream rocketmq {s} traffic", of_haproxy(1.0, 1.2), WITH_LEVELS),
    Work(MIXED_REQUESTS, "requests", "request 64 {s} traffic", of_haproxy(1.35), WITH_LEVELS),
    Work("RocketMQ pulls, traffic, 4 connections", "pulls", "drain rocketmq {s} 4", (), WITH_LEVELS),
    *(
        Work(f"{protocol} stream, traffic of {topics:,} topic{'s' * (topics > 1)}", protocol.lower(),
             f"stream {protocol.lower()} {{s}} traffic:{topics}", (), BLIND_OR_NOT)
        for protocol in ("AMQP", "RocketMQ")
        for topics in (1, 2, 10_000)
    ),
    Work("AMQP publishes, traffic, a new connection for each ten", "confirms", "visits amqp {s} 8 10", (), BLIND_OR_NOT),
    Work("RocketMQ sends, traffic, a new connection for each ten", "requests", "visits rocketmq {s} 8 10", (), BLIND_OR_NOT),
    *(
        Work(f"{name}, TLS on both hops", f"{backend}{TLS}", command, of_haproxy(bound), ("haproxy", "sluice"))
        for name, backend, command, bound in (
            ("AMQP stream, traffic", "amqp", "stream amqp {s} traffic", 1.3),
            (MIXED_CONFIRMS, "confirms", "publish 32 {s} traffic 100 any acked", 1.3),
            ("RocketMQ stream, traffic", "rocketmq", "stream rocketmq {s} traffic", 1.3),
            (MIXED_REQUESTS, "requests", "request 64 {s} traffic", 1.4),
        )
    ),
    Work(f"{MIXED_CONFIRMS}, half refused", "confirms", f"publish 32 {{s}} traffic 100 any acked {REFUSED} nacked",
         (Goal("cpu", 1.0, of="sluice", work=MIXED_CONFIRMS),), ("sluice",)),
    Work(f"{MIXED_REQUESTS}, half refused", "requests", f"request 64 {{s}} traffic any 0 {REFUSED} 215",
         (Goal("cpu", 1.0, of="sluice", work=MIXED_REQUESTS),), ("sluice",)),
)  # fmt: skip

WORKS: Final = (
    *TRAFFIC,
    Work("RocketMQ request/reply, 1 connection", "requests", "request 1 {s} 200", (Goal("added_p50", 1.2, of=BETTER),)),
    Work(REQUESTS, "requests", "request 32 {s} 200", (LIKE_THE_BETTER,), WITH_NEVER),
    Work("RocketMQ request/reply, 256 connections", "requests", "request 256 {s} 200", (LIKE_THE_BETTER,)),
    Work("RocketMQ stream, 200 B", "rocketmq", "stream rocketmq {s} 200", (LIKE_THE_BETTER,), WITH_NEVER),
    Work("RocketMQ stream, 16 KiB", "rocketmq", "stream rocketmq {s} 16384", (LIKE_THE_BETTER,)),
    Work("AMQP stream, 200 B", "amqp", "stream amqp {s} 200", (LIKE_THE_BETTER,)),
    Work("AMQP stream, 16 KiB", "amqp", "stream amqp {s} 16384", (LIKE_THE_BETTER,)),
    Work(CONFIRMS, "confirms", "publish 32 {s} 200 100 bench.passed acked", (Goal("cpu", 1.2, of=BETTER),), WITH_NEVER),
    # Somebody looks: what pages of the dashboard cost beside the same load.
    Work(
        f"{REQUESTS}, {PAGES} pages open",
        "requests",
        "request 32 {s} 200",
        (Goal("cpu", 1.1, of="sluice", work=REQUESTS),),  # as far as the same work through the same gateway differs by chance
        ("sluice",),
        PAGES,
    ),
    # What a refusal costs: the same load where every second message, or every one, meets a limit of 0. With half of them refused the
    # mean is at most that of passed ones exactly where a refused one costs at most what a passed one does. Publishes that follow one
    # another on a channel are handled in runs of one topic, so two topics in turn cost more than one, whether refused or not.
    Work(IN_TURN, "confirms", "publish 32 {s} 200 100 bench.passed acked bench.other acked", (), ("sluice", NEVER)),
    *(
        Work(f"{name}, {part} refused", backend, command, (Goal("cpu", 1.0, of="sluice", work=passed),), ("sluice",))
        for name, backend, part, command, passed in (
            (REQUESTS, "requests", "half", f"request 32 {{s}} 200 bench.passed 0 {REFUSED} 215", REQUESTS),
            (REQUESTS, "requests", "all", f"request 32 {{s}} 200 {REFUSED} 215", REQUESTS),
            (CONFIRMS, "confirms", "half", f"publish 32 {{s}} 200 100 bench.passed acked {REFUSED} nacked", IN_TURN),
            (CONFIRMS, "confirms", "all", f"publish 32 {{s}} 200 100 {REFUSED} nacked", CONFIRMS),
        )
    ),
    # RabbitMQ itself, nothing bound: the less it does, the more a proxy is felt. With confirms: one in flight on each connection.
    Work("RabbitMQ publish, 16 in lock-step", "rabbitmq", "publish 16 {s} 200 1 bench.passed acked", (AS_MUCH,), WITHOUT_ENVOY),
    *(
        Work(
            f"RabbitMQ stream, 200 B, {count} connection{'s' * (count > 1)}",
            "rabbitmq",
            f"stream rabbitmq {{s}} 200 {count}",
            (),
            WITHOUT_ENVOY,
        )
        for count in (1, 2, 4)
    ),
    # RocketMQ itself with its own Java producer, on one connection. The broker and Java fill both processors.
    Work("RocketMQ broker, Java sync, 16 threads", "broker", "java sync 16 {s} 200", (AS_MUCH,), WITHOUT_ENVOY),
    Work("RocketMQ broker, Java async, 256 under way", "broker", "java async 256 {s} 200", (AS_MUCH,), WITHOUT_ENVOY),
)


def chosen(group: str, texts: list[str]) -> list[Work]:
    """Of "all", "stand-ins" or "brokers" those whose names contain one of `texts`, where there are any."""
    of_group = [work for work in WORKS if group == "all" or (work.backend in BROKERS) == (group == "brokers")]
    return [work for work in of_group if not texts or any(text in work.name for text in texts)]
