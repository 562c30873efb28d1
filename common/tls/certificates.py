"""Certificates in files: what must be known of one before it is used, above all until when it holds.

The standard library verifies certificates but shows only those a peer has sent and that were found good; of our own it says nothing.
So the few fields needed are read from the DER here (RFC 5280, 4.1), and nothing is verified: that is OpenSSL's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from common.regular_files import read_regular

MAX_FILE_BYTES: Final = 4 << 20  # bytes; Debian's bundle of all public CAs has 0.2 MiB
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0  # [0] EXPLICIT, absent in version 1
_EXTENSIONS: Final = 0xA3  # [3] EXPLICIT, absent before version 3
_BOOLEAN: Final = 0x01
_UTC_TIME: Final = 0x17
_BASIC_CONSTRAINTS: Final = bytes.fromhex("551d13")  # 2.5.29.19


class TlsFileError(Exception):
    """A file TLS cannot do with: which setting names it (`certificate`, `key`, `ca`), what is wrong, and the way out."""

    def __init__(self, setting: str, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.setting = setting
        self.message = message
        self.remedy = remedy


Read = Callable[[Path, str], str]  # the text of a PEM file, and the setting that names it; raises TlsFileError


class Validity(NamedTuple):
    """From when until when a certificate holds, in seconds since 1970."""

    since: int
    until: int


def read_text(file: Path, setting: str) -> str:
    """The text of a PEM file. Raises TlsFileError where it is not to be had."""
    try:
        data = read_regular(file, MAX_FILE_BYTES)
    except OSError as error:
        raise TlsFileError(
            setting, f"{file} cannot be read: {error.strerror}", "check the name, and that the gateway's user may read it"
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise TlsFileError(setting, f"{file} is larger than {MAX_FILE_BYTES >> 20} MiB", "name a PEM file")
    return data.decode("latin-1")


def validities(file: Path, setting: str, read: Read = read_text) -> list[Validity]:
    """Of every certificate in a PEM file, in its order; at least one. Raises TlsFileError."""
    try:
        return [validity(der) for der in certificates(file, setting, read)]
    except ValueError as error:
        raise TlsFileError(setting, f"{file} holds a broken certificate: {error}", "write it again") from None


def certificates(file: Path, setting: str, read: Read = read_text) -> list[bytes]:
    """The DER of every certificate in a PEM file; at least one. Raises TlsFileError, and ValueError where one is not even base64."""
    from ssl import PEM_cert_to_DER_cert

    text = read(file, setting)
    blocks = _PEM.findall(text)
    if not blocks:
        der = " (it looks like DER: `openssl x509 -inform der` converts it)" if text[:1] == "\x30" else ""
        raise TlsFileError(
            setting, f"{file} holds no certificate in PEM form{der}", "a certificate begins with -----BEGIN CERTIFICATE-----"
        )
    return [PEM_cert_to_DER_cert(block) for block in blocks]


def validity(der: bytes) -> Validity:
    """Of one certificate. Raises ValueError where it is none."""
    try:
        _serial, _algorithm, _issuer, times = _fields(der)[:4]
        since, until = _elements(der, *times[1:])
        return Validity(_time(der, *since), _time(der, *until))
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"it is not an X.509 certificate ({error})") from None


def vouches(der: bytes) -> bool:
    """Whether a certificate that is trusted lets others in that it has signed, or itself: a CA's, or one that its own key has signed.

    A CA's says so (basicConstraints, RFC 5280, 4.2.1.9); those of version 1 cannot. Raises ValueError where it is none.
    """
    try:
        fields = _fields(der)
        issuer, subject = fields[2], fields[4]
        if der[issuer[1] : issuer[2]] == der[subject[1] : subject[2]]:
            return True
        extensions = next((field for field in fields if field[0] == _EXTENSIONS), None)
        if extensions is None:
            return False
        (listed,) = _elements(der, *extensions[1:], _SEQUENCE)
        for _, start, end in _elements(der, *listed[1:], _SEQUENCE):
            name, *_critical, value = _elements(der, start, end)
            if der[name[1] : name[2]] == _BASIC_CONSTRAINTS:
                (constraints,) = _elements(der, *value[1:], _SEQUENCE)
                values = list(_elements(der, *constraints[1:]))
                return bool(values) and values[0][0] == _BOOLEAN and der[values[0][1]] != 0
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"it is not an X.509 certificate ({error})") from None
    return False


def _fields(der: bytes) -> list[tuple[int, int, int]]:
    """The fields of a certificate from its serial number on: algorithm, issuer, validity, subject, key, and what may follow."""
    certificate = next(_elements(der, 0, len(der), _SEQUENCE))
    to_be_signed = next(_elements(der, *certificate[1:], _SEQUENCE))
    fields = list(_elements(der, *to_be_signed[1:]))
    return fields[1:] if fields[0][0] == _VERSION else fields


def _elements(data: bytes, start: int, end: int, expected: int = 0) -> Iterator[tuple[int, int, int]]:
    """Tag, start and end of the content of each DER element in `data[start:end]`. Raises ValueError."""
    at = start
    while at < end:
        tag = data[at]
        length = data[at + 1]
        at += 2
        if length & 0x80:  # the long form; indefinite lengths (0x80) are not DER
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise ValueError("a length that is not DER")
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > end or (expected and tag != expected):
            raise ValueError("the structure does not fit")
        yield tag, at, at + length
        at += length


def _time(data: bytes, tag: int, start: int, end: int) -> int:
    text = data[start:end].decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 50 and above are 19xx (RFC 5280, 4.1.2.5.1)
        text = ("19" if text[:2] >= "50" else "20") + text
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())


def common_name(peer: Mapping[str, Any] | None) -> str | None:
    """The user a verified peer's certificate (`SSLObject.getpeercert()`) names: its CN; several joined by commas, as RabbitMQ does.

    RabbitMQ's `ssl_cert_login_from = common_name` (rabbit_ssl:peer_cert_auth_name/2). None where the subject has no CN.
    """
    names = [value for part in (peer or {}).get("subject", ()) for name, value in part if name == "commonName"]
    return ",".join(names) or None
