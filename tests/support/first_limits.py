"""What a first limit of an installation page is worth: a flood at the gateway, what a real RabbitMQ got of it, what the dashboard shows.

And a clock for it: from the page's first command behind the build until the flood is seen.
"""

from __future__ import annotations

import json
import shlex
import time
import urllib.request
from typing import Any

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.floods import Counted, flood_until_refused
from support.pages import ROOT, blocks
from support.processes import HANG_S, wait_until

RATE = 100  # messages a second, of the pages
HELD = 300  # messages of a flood that is held, not refused: two seconds of it


def command_of(page: str, verb: str = "limits set") -> list[str]:
    """The words after `sluice` of the page's one command with this verb."""
    shown = blocks(ROOT / f"docs/deploy/{page}.md", "sh", "text")
    (line,) = [line for block in shown for line in block.text.splitlines() if verb in line]
    words = shlex.split(line)
    return words[words.index(verb.split(maxsplit=1)[0]) :]


def first_queue(rabbitmq: RabbitMQ) -> Queue:
    """For the topic of the pages: bound at the broker itself."""
    return Queue(rabbitmq.url, "first", exchange="orders", keys=("order.created",))


def assert_limited(url: str, queue: Queue, *, held: bool = False, exchange: str = "orders", key: str = "order.created") -> Counted:
    """Publish through the gateway at `url` until 100 are refused: at most burst and rate pass, and the broker has exactly those.

    `held`: the limit's action is delay, so nothing is refused.
    """
    counted = flood_until_refused(url, exchange, key, **({"most": HELD} if held else {}))
    assert counted.refused >= (0 if held else 100), counted
    assert counted.confirmed <= RATE * (1 + counted.seconds) + 1, counted
    assert len(queue.contents()) == counted.confirmed
    return counted


def assert_seen(admin: str, sign_in: dict[str, str], counted: Counted, key: str = "order.created") -> None:
    """The page is there, takes what a person signs in with (`token`, or the `code` of a link), and gets the topic as the flood left it."""
    with urllib.request.urlopen(f"{admin}/", timeout=HANG_S) as page:
        assert page.headers["Content-Type"].startswith("text/html")
        assert b"/app.js" in page.read()
    body = json.dumps(sign_in).encode()
    asked = urllib.request.Request(f"{admin}/v1/session", body, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(asked, timeout=HANG_S) as answer:
        cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def drawn() -> bool:
        with urllib.request.urlopen(urllib.request.Request(f"{admin}/v1/topics", headers={"Cookie": cookie}), timeout=HANG_S) as answer:
            topics: list[dict[str, Any]] = json.load(answer)["items"]
        found = [(each["forwarded"], each["refused"]) for each in topics if each["topic"].endswith(f"/{key}")]
        return found == [(counted.confirmed, counted.refused)]

    wait_until(drawn, within=60, what="the dashboard shows the flood")


class Clock:
    """Seconds of a new user's way along a page, from now on."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._begun = time.monotonic()
        self._steps: list[str] = []

    def at(self, step: str) -> None:
        self._steps.append(f"{step} {time.monotonic() - self._begun:.0f} s")

    def remark(self, counted: Counted) -> str:
        """The row of a table: the steps, and the flood's counts. pytest prints it at the end of its run (`record_property`)."""
        flood = f"{counted.confirmed + counted.refused} published, RabbitMQ got {counted.confirmed} in {counted.seconds:.1f} s"
        return f"{self._page}: {', '.join(self._steps)}; {flood}, {counted.refused} refused"
