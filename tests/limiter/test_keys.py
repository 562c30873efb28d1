"""What is counted of a key, and what is remembered of where its messages come from."""

from __future__ import annotations

from limiter.keys import MAX_SAID, Origin, Tally
from limiter.rules.sender import Sender


def test_the_peak_is_the_largest_sum_of_one_window() -> None:
    tally = Tally()
    for messages, window in ((3, 7), (4, 7), (5, 8), (1, 8), (2, 9)):
        tally.receive(messages, window)
    assert (tally.received, tally.peak_100ms) == (15, 7)


def test_the_tally_that_follows_goes_on_in_its_window() -> None:
    tally = Tally()
    tally.receive(5, 7)
    after = tally.start_next()
    assert (after.received, after.peak_100ms) == (0, 0)
    after.receive(4, 7)
    assert (after.received, after.peak_100ms) == (4, 9), "a fold in the middle of a window hides no peak"
    after.receive(3, 8)
    assert after.peak_100ms == 9


def test_what_clients_say_of_themselves_is_remembered_once_and_bounded() -> None:
    origin = Origin("amqp", Sender("rabbit", "10.0.0.1", None), b"/")
    for _ in range(3):
        origin.introduce({"product": "pika"}, "worker")
    assert (origin.libraries, origin.names) == (({"product": "pika"},), ("worker",))
    origin.introduce({}, "")
    assert (origin.libraries, origin.names) == (({"product": "pika"},), ("worker",))
    for number in range(2 * MAX_SAID):
        origin.introduce({"product": str(number)}, str(number))
    assert len(origin.libraries) == len(origin.names) == MAX_SAID
