"""A topology on pika, which has no recovery: the application connects again and declares it anew. URL COUNT. Runs until it is killed."""

from __future__ import annotations

import json
import sys
import time

import pika
import pika.exceptions


def declared(url: str, count: int) -> pika.BlockingConnection:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for number in range(count):
        channel.queue_declare(f"topology.{number}", exclusive=True)
    return connection


def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    connection = declared(url, count)
    print(json.dumps({"declared": count}), flush=True)
    try:
        while True:
            connection.process_data_events(0.1)
    except pika.exceptions.AMQPError:
        pass
    while True:
        try:
            pika.BlockingConnection(pika.URLParameters(url)).close()
            break
        except (pika.exceptions.AMQPError, OSError):  # its broker is not there yet
            time.sleep(0.5)
    began = time.monotonic()
    connection = declared(url, count)
    print(json.dumps({"recovered": count, "seconds": time.monotonic() - began, "errors": []}), flush=True)
    while True:  # until it is killed
        connection.process_data_events(1)


main()
