"""A Celery application: one queue per word of CELERY_QUEUES, and a task that writes what it was given to CELERY_RECORD, a line each.

The exchange, the queue and the routing key have one name. It is a topic exchange: to a direct one Celery sends past it, by queue name.
"""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery
from kombu import Exchange, Queue

app = Celery("record", broker=os.environ["CELERY_BROKER"])
app.conf.update(
    task_queues=[
        Queue(name, Exchange(name, type="topic", durable=False), routing_key=name, durable=False)
        for name in os.environ["CELERY_QUEUES"].split()
    ],
    task_default_delivery_mode="transient",
    task_ignore_result=True,
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": os.environ.get("CELERY_CONFIRM") == "1"},
)


@app.task(name="record")  # type: ignore[untyped-decorator]
def record(queue: str, number: int) -> None:
    with Path(os.environ["CELERY_RECORD"]).open("a") as file:
        file.write(f"{queue} {number}\n")


def send(queue: str, count: int) -> None:
    """Publish `count` tasks, one after the other, and close the connection as an application should.

    When a socket ends without connection.close, RabbitMQ drops what it has not handled yet (directly too: in 20 of 60 tries).
    """
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        for number in range(count):
            record.apply_async((queue, number), queue=queue, retry=False, producer=producer)
