"""Preconditions: ETag and If-Match (RFC 9110 13), so that nobody overwrites what they have not seen.

An ETag here is made of a resource's **configured** part. Usage numbers change with every message; an operator who has seen the limit has
seen what a write replaces.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from admin.problems import ProblemError
from admin.routing import Request


def etag(value: Any) -> str:
    """A strong ETag of whatever msgspec can encode."""
    return f'"{hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]}"'


def require_stated(request: Request) -> None:
    """Raises ProblemError 428 where a write neither says what it has seen nor that it does not care. A dry run writes nothing."""
    if "if-match" not in request.head.headers and not request.flag("force") and not request.flag("dry_run"):
        raise ProblemError(
            428, "precondition-required", "send If-Match with the ETag of what you have read, or ?force=1 to write whatever is there now"
        )


def require_match(request: Request, current: str) -> None:
    """Raises ProblemError 412 where If-Match names something else than `current`. ?force=1 overrides it."""
    given = request.head.headers.get("if-match")
    if given is None or request.flag("force"):
        return
    wanted = [tag.strip() for tag in given.decode("latin-1").split(",")]
    if "*" not in wanted and current not in wanted:
        raise ProblemError(
            412, "precondition-failed", "it was changed since you read it; read it again and decide anew", headers={"ETag": current}
        )
