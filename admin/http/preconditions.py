"""Preconditions: ETag and If-Match (RFC 9110 13), so that a write never replaces a value its author has not seen.

An ETag here is made of a resource's **configured** part. Usage numbers change with every message, and a
write does not replace them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from admin.http.problems import ProblemError
from admin.http.routing import Request


def etag(value: Any) -> str:
    """A strong ETag of any value that msgspec can encode."""
    return f'"{hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]}"'


def require_stated(request: Request) -> None:
    """Raises ProblemError 428 for a write with neither If-Match nor ?force=1. A dry run writes nothing and needs neither."""
    headers = request.head.headers
    if "if-match" not in headers and headers.get("if-none-match") != b"*" and not request.flag("force") and not request.flag("dry_run"):
        raise ProblemError(428, "precondition-required", "send If-Match with the ETag you have read, or ?force=1 to write in any case")


def require_match(request: Request, current: Callable[[], str], *, exists: bool = True) -> None:
    """Raises ProblemError 412 where If-Match does not name the `current` ETag, or If-None-Match: * is given and it exists.

    ?force=1 overrides both; then, and for `*`, the ETag is not asked for.
    """
    given = request.head.headers.get("if-match")
    if request.flag("force"):
        return
    if request.head.headers.get("if-none-match") == b"*" and exists:
        raise ProblemError(412, "precondition-failed", "it exists already; read it, and send If-Match to replace it")
    if given is None:
        return
    wanted = [tag.strip() for tag in given.decode("latin-1").split(",")]
    if "*" in wanted:
        return
    tag = current()
    if tag not in wanted:
        raise ProblemError(412, "precondition-failed", "it has changed since you read it; read it again", headers={"ETag": tag})
