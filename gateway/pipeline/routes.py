"""Routes: what the conversations of a name server's listener ask the gateway for. No other protocol needs them."""

from __future__ import annotations

from mypy_extensions import mypyc_attr


class RouteError(Exception):
    """Clients of a name server's listener cannot be sent to one of its brokers; the text says why, and the way out."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Routes:
    """Where clients of a name server's listener find its brokers: how a conversation, which opens no sockets, asks for listeners.

    What the conversation did with routes is told here too, for the counters and the log.
    """

    def find(self, broker: str, number: int, address: str) -> str:
        """The `host:port` that clients dial instead of `address` for the broker of this name and id. Raises RouteError."""
        raise NotImplementedError

    def find_known(self, address: str) -> str:
        """The same for the address of a broker whose name is not told: "" where it has been in no route."""
        raise NotImplementedError

    def note_answer(self, result: str, detail: str, client: str) -> None:
        """A route answer went to `client`: "rewritten", or an error instead of it (`detail` says why)."""

    def note_refusal(self, code: int, client: str) -> None:
        """`client` has tried to register a broker, or to say something else that only brokers say."""
