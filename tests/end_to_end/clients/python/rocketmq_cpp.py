"""The probe on RocketMQ's C++ core, by its Python binding: `support/clients/rocketmq_probes.py` says what orders and reports mean."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage
from rocketmq.exceptions import RocketMQException

FREE_AFTER_S = 0.2  # the limited send is with the gateway by then
PATIENCE_MS = 120_000  # where how long a busy machine takes is not what is tested

Order = dict[str, str]


def told(error: Exception) -> dict[str, Any]:
    return {"class": type(error).__name__, "code": None, "text": str(error)}


class Sender:
    """One producer, so one connection, for all orders."""

    def __init__(self, name_server: str) -> None:
        self.producer = Producer("probe-producers")
        self.producer.set_namesrv_addr(name_server)
        self.producer.start()

    def send(self, order: Order) -> dict[str, Any]:
        self.producer.set_timeout(PATIENCE_MS)
        seen: list[Any] = []
        free: list[Any] = []
        over: list[float] = []
        before = 0
        began = time.monotonic()
        held_begins = threading.Event()
        limited = threading.Thread(target=self._send_all, args=(order, seen, held_begins), daemon=True)
        limited.start()
        if "free" in order:
            held_begins.wait()
            time.sleep(FREE_AFTER_S)
            for _ in range(int(order["free_count"])):
                free.append(self._attempt(order["free"], "sync", "free-0"))
                over.append(time.monotonic() - began)
                before += limited.is_alive()
        limited.join()
        return {"seen": seen, "free": free, "free_over_s": over, "free_before": before, "elapsed_s": time.monotonic() - began}

    def _send_all(self, order: Order, seen: list[Any], held_begins: threading.Event) -> None:
        bodies = [f"{order['run']}-{number}" for number in range(int(order["count"]))]
        if order["mode"] != "async":
            for number, body in enumerate(bodies):
                if number == 1:
                    held_begins.set()
                if number == len(bodies) - 1 and "timeout" in order:
                    self.producer.set_timeout(int(order["timeout"]))
                seen.append(self._attempt(order["topic"], order["mode"], body))
            return
        answered = threading.Semaphore(0)

        def note(word: Any) -> None:
            seen.append(word)
            answered.release()

        messages = [message(order["topic"], body) for body in bodies]  # the core reads them after send_async has returned
        for one in messages:
            self.producer.send_async(one, lambda _: note("ok"), lambda error: note(told(error)))
        if not all(answered.acquire(timeout=PATIENCE_MS / 1000) for _ in messages):
            seen.append("no callback")

    def _attempt(self, topic: str, mode: str, body: str) -> Any:
        one = message(topic, body)
        try:
            if mode == "oneway":
                self.producer.send_oneway(one)
            elif mode == "ordered":
                self.producer.send_orderly(one, 0)
            else:
                self.producer.send_sync(one)
        except RocketMQException as error:
            return told(error)
        return "ok"


def message(topic: str, body: str) -> Message:
    made = Message(topic)
    made.set_body(body)
    return made


def consume(order: Order) -> dict[str, Any]:
    consumed: list[str] = []
    failed: list[str] = []
    lock = threading.Lock()

    def take(received: RecvMessage) -> None:
        body = received.body.decode()
        with lock:
            if len(failed) < int(order.get("fail_first", "0")) and body not in failed:
                failed.append(body)
                raise RuntimeError("as ordered")
            consumed.append(body)

    consumer = PushConsumer(order["group"])
    consumer.set_namesrv_addr(order["namesrv"])
    consumer.set_instance_name(f"probe-{os.getpid()}-{order['group']}-{time.monotonic_ns()}")
    consumer.set_message_batch_max_size(1)  # else one that fails takes others with it
    consumer.subscribe(order["topic"], take)
    began = time.monotonic()
    consumer.start()
    while len(set(consumed)) < int(order["expected"]) and time.monotonic() - began < int(order["within"]):
        time.sleep(0.02)
    elapsed = time.monotonic() - began
    consumer.shutdown()
    return {"consumed": consumed, "failed": failed, "elapsed_s": elapsed}


def main() -> None:
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the core prints is not a report
    sender: Sender | None = None
    for line in sys.stdin:
        order = dict(word.split("=", 1) for word in line.split())
        try:
            if order["do"] == "send":
                sender = sender or Sender(order["namesrv"])
                answer = sender.send(order)
            else:
                answer = consume(order)
        except Exception:  # a fault of the probe itself
            answer = {"broken": traceback.format_exc()}
        print(json.dumps(answer), file=reports, flush=True)
    reports.flush()
    os._exit(0)  # an orderly shutdown of the core takes seconds


if __name__ == "__main__":
    main()
