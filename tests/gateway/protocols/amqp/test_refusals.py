"""Refused publishes: how much of a content that is still coming in is kept for its return."""

from __future__ import annotations

import pytest
from pamqp import commands

from gateway.pipeline.parts import BODY, REQUEST, Part
from gateway.protocols.amqp.refusals import FRAMING_BYTES, Unanswered, cut
from support.amqp import frames as amqp

SIZE = 1000  # bytes of the body


def refused(room: int, *, mandatory: bool = True) -> tuple[Unanswered, int]:
    """A publish of which method and header are there; and the bytes of these two."""
    begin = amqp.publish(1, "orders", b"x" * SIZE, mandatory=mandatory)[: -SIZE - 8]
    data = b"before" + begin
    return Unanswered(Part(REQUEST, 1, data, 6, len(data), None, 1, 1, SIZE), 6, 7, room), len(begin)


def add(unanswered: Unanswered, *payloads: int) -> None:
    for size in payloads:
        frame = amqp.raw_frame(3, 1, b"x" * size)
        unanswered.add(Part(BODY, 1, b"12" + frame, 2, 2 + len(frame)))


def test_a_mandatory_publish_is_returned_whole_and_refused() -> None:
    unanswered, head = refused(1 << 20)
    assert unanswered.reserved == head + SIZE + SIZE // 8 + FRAMING_BYTES
    add(unanswered, 600, 400)
    assert unanswered.size() == head + SIZE + 2 * 8
    found = amqp.read(unanswered.answer(4088))
    assert [frame.name for frame in found] == ["Basic.Return", "ContentHeader", "ContentBody", "Basic.Nack"]
    assert (found[2].value.value, found[0].channel) == (b"x" * SIZE, 1)
    assert isinstance(found[3].value, commands.Basic.Nack)
    assert (found[3].value.delivery_tag, found[3].value.multiple, found[3].value.requeue) == (7, False, False)
    small, _ = refused(1 << 20)
    add(small, 600, 400)
    assert [len(frame.value.value) for frame in amqp.read(small.answer(300)) if frame.name == "ContentBody"] == [300, 300, 300, 100]


@pytest.mark.parametrize(("room", "mandatory"), [(0, True), (-1, True), (1 << 20, False)])
def test_where_there_is_no_room_for_it_or_nobody_asked_it_is_refused_without_a_return(room: int, *, mandatory: bool) -> None:
    exact = refused(1 << 20)[0].reserved
    unanswered, _ = refused(exact + room if room <= 0 else room, mandatory=mandatory)
    if room == 0:
        assert unanswered.reserved == exact
        return
    assert (unanswered.reserved, unanswered.size()) == (0, 0)
    add(unanswered, SIZE)
    assert unanswered.size() == 0
    assert amqp.names(unanswered.answer(4088)) == ["Basic.Nack"]


def test_a_body_in_absurdly_many_frames_is_not_kept_beyond_what_was_reserved() -> None:
    unanswered, head = refused(1 << 20)
    add(unanswered, *[1] * SIZE)
    left = unanswered.reserved - head - 9 * SIZE
    assert left < 0
    assert unanswered.size() == 0
    assert amqp.names(unanswered.answer(4088)) == ["Basic.Nack"]
    exact, head = refused(1 << 20)
    add(exact, SIZE)
    spare = exact.reserved - exact.size()
    add(exact, *[0] * (spare // 8))
    assert exact.size() == exact.reserved - spare % 8
    fill = exact.reserved - exact.size()
    exact.add(Part(BODY, 1, b"\0" * fill, 0, fill))
    assert exact.size() == exact.reserved, "to the byte"
    exact.add(Part(BODY, 1, b"\0", 0, 1))
    assert (exact.size(), exact.content, exact.pieces) == (0, b"", [])


def test_a_text_is_cut_between_its_letters() -> None:
    assert [cut("aäö", size) for size in (-1, 0, 1, 2, 3, 4, 5, 9)] == ["", "", "a", "a", "aä", "aä", "aäö", "aäö"]
