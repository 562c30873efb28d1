"""What a conversation, and the lines in which its parts wait, are told when a client connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pipeline.routes import Routes

if TYPE_CHECKING:
    from gateway.admission import ConnectionPermit
    from gateway.waiting.disk.waiting_disk import WaitingDisk
    from limiter.judge import Judge


NO_CODES: Final[frozenset[int]] = frozenset()


class ConversationContext:
    """What a conversation is told when it begins."""

    __slots__ = (
        "broker_greeted",
        "broker_id",
        "certificate_user",
        "client",
        "client_port",
        "connection",
        "disk",
        "hold_bytes",
        "judge",
        "lends_certificate",
        "listener",
        "max_frame",
        "mixes_requests",
        "others_pass",
        "own_codes",
        "permit",
        "routes",
        "sends_proxy",
    )

    def __init__(
        self,
        judge: Judge,
        listener: str,
        client: str,
        client_port: int,
        max_frame: int,
        hold_bytes: int,
        connection: int = 0,
        permit: ConnectionPermit | None = None,
        others_pass: bool = False,  # noqa: FBT001, FBT002  -- as the others: one call, in assembly.py
        certificate_user: str | None = None,
        lends_certificate: bool = False,  # noqa: FBT001, FBT002
        sends_proxy: bool = False,  # noqa: FBT001, FBT002
        routes: Routes | None = None,
        own_codes: frozenset[int] = NO_CODES,
        broker_greeted: bool = False,  # noqa: FBT001, FBT002
        disk: WaitingDisk | None = None,
        broker_id: int = 0,
        *,
        mixes_requests: bool = False,
    ) -> None:
        self.judge = judge  # for `origin`, `key` and `release` only; conversations never judge
        self.listener = listener
        self.client = client  # address
        self.client_port = client_port
        self.max_frame = max_frame  # bytes; a frame announced larger is an error before anything is allocated
        self.hold_bytes = hold_bytes  # budget for held parts (memory.per_connection)
        self.connection = connection  # its number, as operators see it
        self.permit = permit  # counted for its user once the broker has authenticated them
        self.others_pass = others_pass  # other versions of the protocol pass opaquely, unlimited
        self.certificate_user = certificate_user  # whom the client's verified certificate names
        self.lends_certificate = lends_certificate  # towards the broker the gateway has a certificate of its own
        self.sends_proxy = sends_proxy  # the broker has been sent a PROXY header first
        self.own_codes = own_codes  # requests that the gateway answers itself (RocketMQ)
        self.broker_greeted = broker_greeted  # the broker has the protocol header already (`Opening.header`): the client's is not passed on
        self.routes = routes  # of a name server's listener
        self.broker_id = broker_id  # of RocketMQ's broker behind the listener
        self.mixes_requests = mixes_requests  # `decode` may give requests of several keys as one part (`Request.columns`)
        self.disk = disk  # where parts wait that are too much for memory; None: none do
