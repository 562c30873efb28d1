"""Kinds of values: where a Redis is."""

from __future__ import annotations

import re
from typing import Final

from config.document import Scalar
from config.kinds import JSON, Invalid, Reading
from config.problems import quote_text
from config.urls import UrlKind

SCHEMES: Final = ("redis", "rediss", "unix")


class RedisUrl(UrlKind):
    """`redis://[user@]host[:port][/database]`, `rediss://` for TLS, `unix:///path[?db=database]`; with no password in it."""

    placeholder = "redis://127.0.0.1:6379/0"
    wanted = "the URL of a Redis"
    example = "redis://127.0.0.1:6379/0"

    def parse(self, scalar: Scalar, path: str, reading: Reading) -> str:
        text = scalar.text
        url = self.split(text)
        if url.scheme not in SCHEMES or not text.startswith(f"{url.scheme}://"):
            near = f"did you mean redis://{text}?" if re.fullmatch(r"[A-Za-z0-9_.-]+(:[0-9]{1,5})?", text) else self.write
            raise Invalid("not the URL of a Redis", f"{near} It begins with redis://, rediss:// (TLS) or unix://")
        if url.password is not None:
            raise Invalid("the URL holds a password, for everybody to see who sees the configuration", "put it into password_file")
        if url.fragment or (url.query and not (url.scheme == "unix" and re.fullmatch("db=[0-9]{1,5}", url.query))):
            raise Invalid("the URL holds more than where the Redis is", "timeout, password_file and tls are settings of their own")
        if url.scheme == "unix":
            if url.hostname or not url.path.startswith("/"):
                raise Invalid("the URL names no socket", "write it like unix:///run/redis/redis.sock?db=0")
            return text
        self.check_host(url)
        if re.fullmatch("/?|/[0-9]{1,5}", url.path) is None:
            raise Invalid(f"{quote_text(url.path)} is not a database", "Redis' databases are numbers: /0")
        return text

    def schema(self) -> dict[str, JSON]:
        return {"type": "string", "pattern": "^(?:rediss?|unix)://", "examples": [self.example]}
