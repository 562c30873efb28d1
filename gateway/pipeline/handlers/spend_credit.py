"""SpendCredit: one credit is spent for every message that is passed on to the limiter. The reader waits when none is left.

Counted next to the client, before the limiter, or refusals would pile up uncounted (`docs/design/limiter.md` 6). Only the reader waits: its
socket is not read while the credit is used up, and TCP does the rest.
"""

from __future__ import annotations

from gateway.pipeline.parts import REQUEST
from gateway.pipeline.pipeline import Batch, Handler
from limiter.credit import Credit


class SpendCredit(Handler):
    """Spends the reader's credit towards the limiter."""

    def __init__(self, credit: Credit) -> None:
        self.credit = credit

    def carry(self, batch: Batch) -> bool:
        messages = 0
        for part in batch.parts:
            if part.kind == REQUEST and part.deadline == 0 and not part.paid:  # what was held has been paid for when it was read
                messages += part.count if part.messages <= 1 else part.count * part.messages
        if messages:
            self.credit.spend(messages, batch.now)
        return True
