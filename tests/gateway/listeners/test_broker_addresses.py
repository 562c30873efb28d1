"""What brokers' addresses in routes may be, and which of them are this gateway's own."""

from __future__ import annotations

import pytest

from config.addresses import Address
from gateway.listeners.broker_addresses import parse, reaches
from gateway.pipeline.routes import RouteError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:10911", ("10.0.0.1", 10911)),
        ("broker.example:1", ("broker.example", 1)),
        ("[::1]:10911", ("::1", 10911)),
        ("fe80::1:10911", ("fe80::1", 10911)),
    ],
)
def test_addresses_in_routes(text: str, address: tuple[str, int]) -> None:
    assert parse(text) == Address(*address)


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1", "10.0.0.1:", ":10911", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:1\u0661", "a b:1", "-x:1", "1.2:3"]
)
def test_a_text_that_is_no_address_is_a_route_error(text: str) -> None:
    with pytest.raises(RouteError):
        parse(text)


@pytest.mark.parametrize(
    ("address", "bound", "called"),
    [
        ("10.0.0.1:1", ("10.0.0.1", 1), ""),
        ("localhost:1", ("127.0.0.1", 1), ""),
        ("gateway.example:1", ("10.0.0.1", 1), "gateway.example"),
        ("127.0.0.2:1", ("0.0.0.0", 1), ""),
        ("localhost:1", ("0.0.0.0", 1), ""),
        ("[::1]:1", ("::", 1), ""),
    ],
)
def test_some_addresses_reach_a_bound_socket(address: str, bound: tuple[str, int], called: str) -> None:
    assert reaches(parse(address), bound, called)


@pytest.mark.parametrize(
    ("address", "bound"),
    [
        ("10.0.0.1:2", ("10.0.0.1", 1)),
        ("10.0.0.2:1", ("10.0.0.1", 1)),
        ("127.0.0.2:1", ("127.0.0.1", 1)),
        ("192.0.2.1:1", ("0.0.0.0", 1)),  # for documentation (RFC 5737): no address of this machine
        ("broker.example:1", ("0.0.0.0", 1)),  # a name: not looked up
    ],
)
def test_other_addresses_do_not_reach_a_bound_socket(address: str, bound: tuple[str, int]) -> None:
    assert not reaches(parse(address), bound)
