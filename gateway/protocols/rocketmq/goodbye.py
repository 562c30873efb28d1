"""Goodbye: what RocketMQ clients are told when the gateway is about to close their connection (`docs/design/rocketmq.md` 3.5).

A Java client above 5.3.1 that is answered GO_AWAY opens another connection, repeats the request there and tells its application nothing
(measured with 5.3.3). Older ones and those in other languages take it for a failure, so the broker answers what they ask to the
end. Only their polls, which the broker may keep for half a minute, get an error: Java's push consumer then pulls again after 3 s. (One of
4.9.8 whose connection ends without an answer does not notice before the poll's own 30 s are over: measured.)
"""

from __future__ import annotations

from typing import Final

from gateway.protocols.rocketmq.refusals import build_refusals

GO_AWAY: Final = 1500
SERVICE_NOT_AVAILABLE: Final = 14  # from a broker that is being shut down
V5_3_1: Final = 475  # the broker says GO_AWAY to those above (NettyRemotingAbstract.processRequestCommand)
REMARK: Final = "this gateway is closing the connection; repeat the request on another"


def understands(language: str, version: int) -> bool:
    """Whether this client repeats elsewhere what is answered with `build_go_away`."""
    return language == "JAVA" and version > V5_3_1


def build_go_away(opaques: list[int]) -> bytes:
    """A response frame for each of the requests with these opaques."""
    return build_refusals(opaques, GO_AWAY, REMARK)


def build_unavailable(opaques: list[int]) -> bytes:
    """The same for clients that do not understand that."""
    return build_refusals(opaques, SERVICE_NOT_AVAILABLE, REMARK)
