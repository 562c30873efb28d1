"""Certificates read from files: until when they hold, and whom a verified one names."""

from __future__ import annotations

import ssl
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.tls.certificates import (
    MAX_FILE_BYTES,
    TlsFileError,
    Validity,
    certificates,
    common_name,
    validities,
    validity,
    vouches,
)
from support.tls import Authority

SINCE = datetime(2020, 2, 29, 12, 34, 56, tzinfo=UTC)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    "until", [datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2051, 1, 2, 3, 4, 5, tzinfo=UTC)], ids=["UTCTime", "GeneralizedTime"]
)
def test_a_certificate_holds_from_when_until_when_it_says(ca: Authority, until: datetime) -> None:
    file, _ = ca.issue("dated", "a.example", not_before=SINCE.replace(tzinfo=None), not_after=until.replace(tzinfo=None))
    assert validities(file, "certificate") == [Validity(int(SINCE.timestamp()), int(until.timestamp()))]


def test_every_certificate_of_a_file_is_read_whatever_stands_between(ca: Authority, tmp_path: Path) -> None:
    file, key = ca.issue("one", "a.example")
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"# ours\n{key.read_text()}\n{file.read_text()}# the CA\n{ca.file.read_text()}")
    assert validities(bundle, "certificate") == validities(file, "certificate") + validities(ca.file, "ca")


def test_a_ca_vouches_and_what_it_has_signed_does_not(ca: Authority) -> None:
    file, _ = ca.issue("leaf", "a.example")
    assert [vouches(der) for der in certificates(file, "ca")] == [False]
    assert [vouches(der) for der in certificates(ca.file, "ca")] == [True]
    below = ca.ca.create_child_ca()
    assert vouches(ssl.PEM_cert_to_DER_cert(below.cert_pem.bytes().decode()))


def test_a_certificate_signed_by_itself_is_trusted_for_itself(tmp_path: Path) -> None:
    file = tmp_path / "self.pem"
    run = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a", "-addext", "basicConstraints=CA:FALSE"]
    subprocess.run([*run, "-keyout", tmp_path / "self.key", "-out", file], check=True, capture_output=True)
    assert [vouches(der) for der in certificates(file, "ca")] == [True]


def test_a_file_that_never_ends_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as opened:
        opened.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(TlsFileError, match="is larger than 4 MiB"):
        validities(file, "certificate")


@given(data=st.data())
def test_a_damaged_certificate_is_an_error_of_one_kind(ca: Authority, data: st.DataObject) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(ca.file.read_text()))
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(der[: data.draw(st.integers(0, len(der)))])
    for damaged in (bytes(der), cut):
        with suppress(ValueError):
            assert isinstance(validity(damaged), Validity)
        with suppress(ValueError):
            assert isinstance(vouches(damaged), bool)


@given(garbage=st.binary(max_size=200))
def test_garbage_is_no_certificate(garbage: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is not an X\.509 certificate"):
        validity(garbage)


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("organizationName", "acme"),), (("commonName", "app"),))}, "app"),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, "a,b"),  # as rabbit_ssl:peer_cert_auth_name(common_name, _)
        ({"subject": ((("organizationName", "acme"),),)}, None),
        ({"subject": ((("commonName", ""),),)}, None),
    ],
)
def test_the_user_is_the_common_name(peer: dict[str, object] | None, name: str | None) -> None:
    assert common_name(peer) == name
