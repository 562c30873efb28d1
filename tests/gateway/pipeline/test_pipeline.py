"""The pipeline: a batch that is kept goes on behind that handler, once; and when a conversation cannot go on for a client that is gone."""

from __future__ import annotations

import pytest

from gateway.pipeline.parts import PLAIN, Part
from gateway.pipeline.pipeline import Batch, Pipeline
from support.wires.recorded import NOW, Desk


def test_a_batch_that_is_kept_goes_on_behind_that_handler_and_once() -> None:
    desk = Desk("delay")
    pipeline = Pipeline([desk.limit, desk.handler])
    batch = Batch(None, b"", NOW)
    batch.parts = [desk.part()]
    assert not pipeline.carry(batch, 0)
    assert (pipeline.kept_at, desk.conversation.said) == (0, []), "the judge has it"
    pipeline.resume(batch)
    assert (pipeline.kept_at, [what for what, *_ in desk.conversation.said]) == (-1, ["hold"])
    with pytest.raises(AssertionError, match="no batch is kept"):
        pipeline.resume(batch)
    assert len(desk.conversation.said) == 1


def test_a_batch_that_nobody_keeps_goes_through_from_the_handler_that_is_named() -> None:
    desk = Desk()
    pipeline = Pipeline([desk.limit, desk.handler])
    batch = Batch(None, b"", NOW)
    batch.parts = [Part(PLAIN, 1, b"", 0, 0)]
    assert pipeline.carry(batch, 0)
    batch.parts = [desk.part()]
    assert pipeline.carry(batch, 1), "the judge is not asked"
    assert (pipeline.kept_at, [what for what, *_ in desk.conversation.said]) == (-1, ["admit", "refuse"])


def test_a_frame_that_lacks_one_byte_will_never_end() -> None:
    conversation = Desk().conversation
    for left, stuck in ((0, False), (1, True)):
        conversation.budget.frame_left = left
        assert conversation.is_stuck() is stuck
