"""Of which peers PROXY headers are believed."""

from __future__ import annotations

import pytest

from gateway.transport.trusted_proxies import TrustedProxies, UntrustedPeerError
from support.cases import in_one_loop


@in_one_loop
@pytest.mark.parametrize(
    ("trusted", "peer", "believed"),
    [
        (["10.0.0.5"], "10.0.0.5", True),
        (["10.0.0.5"], "10.0.0.6", False),
        (["10.0.0.0/24", "2001:db8::/64"], "10.0.0.255", True),
        (["10.0.0.0/24", "2001:db8::/64"], "2001:db8::7", True),
        (["10.0.0.0/24", "2001:db8::/64"], "2001:db8:0:1::7", False),
        (["10.0.0.0/24"], "::ffff:10.0.0.7", True),
        (["::ffff:10.0.0.0/120"], "10.0.0.7", True),
        (["::ffff:10.0.0.0/120"], "10.0.1.7", False),
        (["::ffff:0:0/96"], "192.0.2.7", True),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["0.0.0.0/0"], "192.0.2.7", True),
        (["0.0.0.0/0"], "2001:db8::7", False),
        (["::/0"], "192.0.2.7", False),
        (["0.0.0.0/0", "::/0"], "192.0.2.7", True),
        (["0.0.0.0/0", "::/0"], "2001:db8::7", True),
        (["0.0.0.0/0", "::/0"], "", False),
        ([], "127.0.0.1", False),
    ],
)
def test_who_is_believed(trusted: list[str], peer: str, believed: bool) -> None:
    assert TrustedProxies(trusted).believes(peer) is believed


def test_who_is_not_is_named_with_the_setting_and_the_way_out() -> None:
    with pytest.raises(
        UntrustedPeerError, match=r"^192\.0\.2\.7 is not among trusted_proxies of listener rabbit \(10\.0\.0\.5\),.* add it"
    ):
        TrustedProxies(["10.0.0.5"]).check("192.0.2.7", "rabbit")
    many = TrustedProxies([f"10.0.0.{number}" for number in range(9)])
    with pytest.raises(UntrustedPeerError, match=r"10\.0\.0\.4, and 4 more\)"):
        many.check("192.0.2.7", "rabbit")
    many.check("10.0.0.8", "rabbit")
