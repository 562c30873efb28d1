"""RateLimit: asks the judge about the requests of a batch. What becomes of them by its verdict is Wait's (`gateway/waiting/stage.py`).

`carry` gathers what needs a verdict and keeps the batch; the event loop submits the requests of all sessions of a sweep at once, and the
batch goes on when the judge has written the verdicts into its parts. What waits behind
something paged is not judged before its turn (`Lines.mark_unjudged`).
"""

from __future__ import annotations

from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import REQUEST, cut_all
from gateway.pipeline.pipeline import Batch, Handler


class RateLimit(Handler):
    """Keeps a batch until its requests have their verdicts."""

    def __init__(self, conversation: Conversation) -> None:
        self.lines = conversation.lines

    def carry(self, batch: Batch) -> bool:
        parts = batch.parts
        if self.lines.has_paged:
            parts = batch.parts = cut_all(parts)
            self.lines.mark_unjudged(parts, batch.now)
        asking = 0
        for part in parts:
            if part.kind == REQUEST and not part.paid and part.unjudged == 0:
                asking += 1
        if asking == len(parts):
            batch.requests = parts
        else:
            batch.requests = [part for part in parts if part.kind == REQUEST and not part.paid and part.unjudged == 0]
        return asking == 0
