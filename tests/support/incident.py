"""The incident that this gateway comes from, on a small scale: one consumer group's retry storm, and ten topics that have no part in it.

A RocketMQ broker sheds load blind to topics: whatever has waited too long for its send threads is answered with code 2, whoever sent it.
Here the broker is made weak, so that a storm which a small machine can blow is one: one send thread, every write flushed to the disk, and
a queue wait of half the default. The storm follows what this broker takes on this machine (`Incident.calibrate`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.clients.storm import Second, Storm, original
from support.java import ROOT
from support.processes import wait_until

QUEUE_WAIT_MS: Final = 100
WEAK: Final[dict[str, object]] = {
    "sendMessageThreadPoolNums": 1,
    "flushDiskType": "SYNC_FLUSH",
    "waitTimeMillsInSendQueue": QUEUE_WAIT_MS,
    "mappedFileSizeCommitLog": 67_108_864,
}
QUIET: Final = [f"quiet-{number}" for number in range(10)]
PER_TOPIC: Final = 15  # messages a second to each quiet topic
ORIGINALS: Final = "orders"
GROUP: Final = "workers"
RETRIES: Final = f"%RETRY%{GROUP}"
CLIENTS: Final = {"127.0.0.11": 3, "127.0.0.12": 1, "127.0.0.13": 1}  # address: share of the storm; the first is the worst
KIB: Final = 1024
# Storms, tried in turn: send-backs a second, and the size of the original. More a second would measure the machine's cores and not the
# broker; with a fast disk each must be larger.
STORMS: Final = ((2000, 192 * KIB), (3000, 192 * KIB), (4500, 192 * KIB), (4500, 384 * KIB), (4500, 768 * KIB))
TAKEN: Final = 0.35  # a storm is one where the broker stores no more than this part: both tries of a send are then shed in some


def default_rules() -> list[dict[str, object]]:
    """The two defaults of `config/limits.yaml`: for every topic of RocketMQ, and for every consumer group's retries."""
    rules: list[dict[str, object]] = yaml.safe_load((ROOT / "config" / "limits.yaml").read_text())["rules"]
    return [rule for rule in rules if rule["name"] in {"rocketmq-topics", "rocketmq-retries"}]


@dataclass
class QuietSecond:
    """What the applications of the quiet topics saw in one second."""

    ms: list[float] = field(default_factory=list)  # of sends that succeeded
    failed: Counter[str] = field(default_factory=Counter)  # topic: sends that failed for good
    codes: Counter[int] = field(default_factory=Counter)  # of those

    @property
    def failures(self) -> int:
        return self.failed.total()

    @classmethod
    def from_json(cls, topics: dict[str, dict[str, object]]) -> QuietSecond:
        found = cls()
        for topic, seen in topics.items():
            assert isinstance(seen["ms"], list)
            assert isinstance(seen["failed_ms"], list)
            assert isinstance(seen["codes"], dict)
            found.ms += seen["ms"]
            found.failed[topic] += len(seen["failed_ms"])
            found.codes.update({int(code): count for code, count in seen["codes"].items()})
        return found


def percentile(values: list[float], share: float) -> float:
    """The value that this share of `values` does not exceed; 0 where there is none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


class Phase:
    """Some seconds of calm, or of storm, and what was seen in them."""

    def __init__(self, name: str, quiet: list[QuietSecond], storm: Storm | None) -> None:
        self.name = name
        self.seconds = len(quiet)
        self.ms = [ms for second in quiet for ms in second.ms]
        self.failed = sum((second.failed for second in quiet), Counter[str]())
        self.codes = sum((second.codes for second in quiet), Counter[int]())
        self.storm = storm

    @property
    def failures(self) -> int:
        return self.failed.total()

    @property
    def sends(self) -> int:
        return len(self.ms) + self.failures

    @property
    def median_ms(self) -> float:
        return percentile(self.ms, 0.5)

    @property
    def p99_ms(self) -> float:
        return percentile(self.ms, 0.99)

    def __str__(self) -> str:
        quiet = f"{self.failures} of {self.sends} sends failed {dict(self.codes)}, median {self.median_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"
        storm = "" if self.storm is None else f"; storm {self.storm.sent / self.seconds:.0f}/s, answered {dict(self.storm.codes)}"
        return f"{self.name}: {quiet}{storm}"


EachSecond = Callable[[int, QuietSecond, Second | None], None]


class Incident:
    """The quiet applications at work on a weak broker, and the means to let a storm loose. A context manager.

    Ends by itself after `seconds`. The gateway must listen at the broker's advertised address already.
    """

    def __init__(self, broker: RocketMQ, home: Path, *, seconds: float) -> None:
        home.mkdir(parents=True)
        broker.create_topics(*QUIET, ORIGINALS, f"{RETRIES}:1")
        self.address = (broker.advertised, broker.port)
        self.offset = 0  # of the message that is sent back, and
        self.rate = 0  # how often in a second of a storm; `calibrate` finds them
        self.taken = 0.0  # and how many of them the broker stores
        self.quiet: dict[int, QuietSecond] = {}  # by the wall clock
        self._program = RocketMQClient("5", home, broker.name_server).steady("quiet", QUIET, rate=PER_TOPIC, seconds=seconds)
        self._reader = threading.Thread(target=self._read, name="quiet", daemon=True)

    def __enter__(self) -> Incident:
        self._reader.start()
        wait_until(lambda: bool(self.quiet), within=30, what="the quiet applications")
        return self

    def __exit__(self, *_: object) -> None:
        self._program.stop()
        self._reader.join(5)

    def _read(self) -> None:
        for told in self._program.lines():
            self.quiet[told["second"]] = QuietSecond.from_json(told["topics"])

    def calibrate(self) -> int:
        """Find a storm that this broker cannot take, in two seconds for each that is tried; no limit may hold meanwhile.

        The one that it is to be is tried twice: a broker that has just started takes less (5.5.0: a third of what it takes later).
        """
        for rate, size in STORMS:
            self.rate = rate
            self.offset = original(self.address, ORIGINALS, size)
            self.taken = self._taken()
            if self.taken <= TAKEN * rate:
                self.taken = max(self.taken, self._taken())
                if self.taken <= TAKEN * rate:
                    break
        self._settle()
        return self.rate

    def _taken(self) -> float:
        """How many send-backs a second the broker stores of a storm."""
        with Storm(self.address, GROUP, self.offset, ORIGINALS, rate=self.rate, clients=CLIENTS) as storm:
            time.sleep(2)
        return self.rate * storm.codes[0] / storm.sent

    def calm(self, seconds: int, each: EachSecond | None = None) -> Phase:
        return self._phase("calm", seconds, each, None)

    def storm(self, name: str, seconds: int, each: EachSecond | None = None) -> Phase:
        storm = Storm(self.address, GROUP, self.offset, ORIGINALS, rate=self.rate, clients=CLIENTS)
        return self._phase(name, seconds, each, storm)

    def _phase(self, name: str, seconds: int, each: EachSecond | None, storm: Storm | None) -> Phase:
        """Whole seconds of the wall clock, from the next on. A storm leaves nothing behind: it ends when all is answered."""
        time.sleep(1 - time.time() % 1)
        first = int(time.time())
        with storm or nullcontext():
            for second in range(first, first + seconds):
                self._await(second)
                if each is not None:
                    each(second, self.quiet[second], None if storm is None else storm.seconds.get(second, Second()))
        if storm is not None:
            self._settle()
        return Phase(name, [self.quiet[second] for second in range(first, first + seconds)], storm)

    def _settle(self) -> None:
        """Wait until the last sends that a storm has hit are over: a whole second without a failure. Where none comes, the calm tells."""
        after = int(time.time()) + 1
        with suppress(TimeoutError):
            wait_until(lambda: self._is_calm(after), within=30, what="calm", at_least=0)

    def _is_calm(self, after: int) -> bool:
        return any(second >= after and not seen.failures for second, seen in [*self.quiet.items()])

    def _await(self, second: int) -> None:
        wait_until(lambda: second in self.quiet, within=30, what=f"what the quiet applications saw in second {second}", every=0.02)
