"""Log lines of the control plane: one event each, in the form the gateway's log handler writes (`docs/design/contract.md` 8)."""

from __future__ import annotations

import logging
from typing import Final

_log: Final = logging.getLogger("sluice.admin")


def event(level: int, name: str, **fields: object) -> None:
    """Log `name` (snake_case, stable) with `fields`. Never give it a token or a header."""
    _log.log(level, name, extra={"fields": fields})


def failure(name: str, error: BaseException, **fields: object) -> None:
    """Log an unexpected exception, with its trace."""
    _log.error(name, exc_info=error, extra={"fields": fields})
