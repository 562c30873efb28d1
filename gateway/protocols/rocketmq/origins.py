"""Origins: for which user a connection's requests count, by the access key each of them claims.

A RocketMQ client does not log in. With ACL every request carries an access key and a signature (`docs/design/rocketmq.md` 4.6), so `user`
is the key of the request, not of the connection; in practice all of a client's requests claim one and the same.

The gateway does not have the secrets, so it cannot verify a signature. A client that claims another's key spends that key's tokens, though
the broker then refuses the request. Where clients may be hostile, a rule names their addresses, too (`match: {user: …, client: …}`), which
cannot be claimed: a limit of a user binds only clients that are honest about their key.

Making up keys costs a client nothing, so at most MAX_USERS of a connection are kept, the one used last the longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.context import ConversationContext

if TYPE_CHECKING:
    from limiter.keys import Origin

MAX_USERS: Final = 64  # of one connection; a client has one, a relay on behalf of many perhaps dozens: a guess
MAX_USER_BYTES: Final = 256  # of an access key that are kept; Alibaba's have 24, RocketMQ's own at least 6: a guess

LANGUAGES: Final = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS")


def binary_client(data: bytes, at: i64) -> tuple[str, int]:
    """Language and version of the client, in the binary header that begins at `data[at]`."""
    language: i64 = data[at + 2]
    version: int = u32(data, at + 1) & 0xFFFF
    return (LANGUAGES[language] if language < len(LANGUAGES) else str(language)), version


class Origins:
    """The origins of one connection; the judge counts the connection as a session of each."""

    __slots__ = ("by_user", "context", "ended", "library")

    def __init__(self, context: ConversationContext) -> None:
        self.context = context
        self.by_user: dict[bytes, Origin] = {}  # the one used last comes last
        self.ended = False
        self.library: dict[str, object] = {}  # what the client says of itself

    def introduce(self, language: str, version: int) -> None:
        """The connection's first request says what client it is."""
        self.library = {"language": language, "version": version}
        for origin in self.by_user.values():
            origin.introduce(self.library)

    def of(self, user: bytes) -> Origin:
        """The origin of requests that claim the access key `user`; b"": none."""
        user = user[:MAX_USER_BYTES]
        origin = self.by_user.pop(user, None)
        if origin is None:
            context = self.context
            if len(self.by_user) >= MAX_USERS:
                if user and not context.judge.may_name(next(iter(self.by_user.values()))):
                    return self.of(b"")  # it invents one for each request: they count as nobody's for now
                context.judge.release(self.by_user.pop(next(iter(self.by_user))), connection_ends=False)
            origin = context.judge.origin("rocketmq", context.listener, context.client, user_text(user), connection=context.connection)
            origin.introduce(self.library)
        self.by_user[user] = origin
        return origin

    def renew(self) -> None:
        """Other rules are in force: they may tell connections apart."""
        context = self.context
        for user, origin in list(self.by_user.items()):
            self.by_user[user] = context.judge.own(origin, context.connection)

    def release(self) -> None:
        """The connection is over."""
        if self.ended:
            return
        self.ended = True
        for origin in self.by_user.values():
            self.context.judge.release(origin)

    def __repr__(self) -> str:
        return f"<Origins {[origin.user for origin in self.by_user.values()]}>"


def user_text(user: bytes) -> str | None:
    """An access key as rules, logs and operators see it; bytes that are not UTF-8 (binary headers) are replaced, as in Java."""
    return user[:MAX_USER_BYTES].decode(errors="replace") or None
