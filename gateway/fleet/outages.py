"""Why Redis has no answer: one of a few reasons, for people and metrics, out of the errors of Redis and of redis-py."""

from __future__ import annotations

from typing import Final

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    InvalidResponse,
    MovedError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

UNREACHABLE: Final = "unreachable"  # no connection: refused, reset, no such host
TIMEOUT: Final = "timeout"
DENIED: Final = "denied"  # wrong password, or a user that may not run scripts
FULL: Final = "full"  # maxmemory
NOT_READY: Final = "not_ready"  # loading, a replica, a cluster that is down
NONSENSE: Final = "nonsense"  # an answer that cannot be one
ERROR: Final = "error"  # any other error
REASONS: Final = (UNREACHABLE, TIMEOUT, DENIED, FULL, NOT_READY, NONSENSE, ERROR)
BY_WORD: Final = {  # the first word of Redis' error replies -> why
    "OOM": FULL, "NOAUTH": DENIED, "WRONGPASS": DENIED, "NOPERM": DENIED, "LOADING": NOT_READY, "READONLY": NOT_READY,
    "MASTERDOWN": NOT_READY, "CLUSTERDOWN": NOT_READY, "TRYAGAIN": NOT_READY, "NOREPLICAS": NOT_READY, "MISCONF": NOT_READY,
    "BUSY": NOT_READY,
}  # fmt: skip
BY_CLASS: Final = {  # redis-py takes that word off where it has a class for it
    "OutOfMemoryError": FULL, "ReadOnlyError": NOT_READY, "ClusterDownError": NOT_READY, "MasterDownError": NOT_READY,
    "TryAgainError": NOT_READY, "AskError": NOT_READY,
}  # fmt: skip


class OwnerGoneError(Exception):
    """The owner has not answered: the reason, one of REASONS, and the detail for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def reason_of(error: Exception) -> tuple[str, str]:
    """Why there is no answer: one of REASONS, and the detail for people, on one line."""
    detail = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return TIMEOUT, detail
    if isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return DENIED, detail
    if "unauthenticated" in detail:  # long commands are refused before a password is asked for
        return DENIED, detail
    if isinstance(error, BusyLoadingError):
        return NOT_READY, detail
    if isinstance(error, MovedError):
        return NOT_READY, f"{detail}: a slot has moved, or this is a cluster and not said to be one; then set fleet.redis.cluster: true"
    if isinstance(error, RedisClusterException):
        return NOT_READY, detail
    if isinstance(error, ResponseError):
        return BY_CLASS.get(type(error).__name__) or BY_WORD.get(detail.partition(" ")[0], ERROR), detail
    if isinstance(error, InvalidResponse) or not isinstance(error, RedisError | OSError):
        return NONSENSE, detail
    return UNREACHABLE, detail
