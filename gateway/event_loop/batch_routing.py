"""Batches on their way to the judge and back: which thread judges a session's batches, and how each batch was judged.

The limiter's executor sees requests only and knows nothing of sessions. So it is given `split_by_session`, by which all batches of a
session go to the thread of its number.
"""

from __future__ import annotations

from gateway.pipeline.parts import pieces_of
from gateway.pipeline.pipeline import Batch
from gateway.session.session import Session
from limiter.executor import Submission


def split_by_session(submission: Submission, threads: int) -> list[Submission]:
    """The submission cut into one per thread: every session's requests go to the thread of its number."""
    shares: list[list[Batch]] = [[] for _ in range(threads)]
    batches = submission.owner
    assert isinstance(batches, list)
    for batch in batches:
        session = batch.owner
        assert isinstance(session, Session)
        shares[session.number % threads].append(batch)
    pieces = []
    for share in shares:
        piece = Submission([], submission.now, share, submission.mixed)
        for batch in share:
            piece.requests.extend(batch.requests)
        pieces.append(piece)
    return pieces


def unjudged_messages(batch: Batch) -> int:
    """How many messages of the batch passed without a verdict."""
    messages = 0
    for request in pieces_of(batch.requests):
        if request.bypassed:
            messages += request.count * request.messages
    return messages
