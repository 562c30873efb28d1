"""TLS on a hop: which versions, which certificates, and what its errors mean in words.

OpenSSL gets the text that was read and checked, in memory: it opens no file itself, and one that changes meanwhile is taken as it was.

Safe by default: TLS 1.2 at least, no compression, no renegotiation, Python's own choice of ciphers; the broker's certificate is verified
and must name the broker. Keys with a password are not supported: there is no one to type it.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from common.records import dataclass
from common.tls.certificates import TlsFileError, Validity, read_text, validities
from common.views.listeners import TlsView

MFD_NOEXEC_SEAL: Final = 0x8  # of Linux 6.3 and later: a machine with vm.memfd_noexec=2 makes no file in memory without it
CLIENT: Final = "client"  # the hop between clients and the gateway
UPSTREAM: Final = "upstream"  # the hop between the gateway and the broker


@dataclass(frozen=True, slots=True)
class Hop:
    """How connections of one hop are protected. Immutable: a reload makes another, and connections keep what they began with."""

    context: ssl.SSLContext
    server_side: bool
    server_name: str | None  # towards a broker: its name in SNI and certificate; None: not known yet, see `copy_for_host`
    own: Validity | None  # of our own certificate and those that vouch for it: the earliest end
    fingerprint: int  # of the files' contents: equal where a reload found the same
    failures: dict[str, int] = field(default_factory=dict)  # handshakes that failed, by the label of the reason
    permissive: bool = False  # towards clients: those that begin without TLS are let in too
    texts: dict[str, str] = field(default_factory=dict, repr=False, compare=False)  # by file: what it held

    def describe(self) -> TlsView:
        """For `GET /v1/listeners`."""
        until = None if self.own is None else datetime.fromtimestamp(self.own.until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        verified = self.context.verify_mode == ssl.CERT_REQUIRED
        mode = {"mode": "permissive" if self.permissive else "enforcing"} if self.server_side else {}
        return TlsView(certificate_expires=until, peer_verified=verified, handshakes_failed=dict(self.failures), **mode)

    def copy_for_host(self, host: str) -> Hop:
        """The same towards the broker on `host`, which its certificate must name where no other name was given."""
        if self.server_name:
            return self
        return replace(self, server_name=host.removesuffix("."))

    def copy_for_listener(self) -> Hop:
        """The same, with failures of its own."""
        return replace(self, failures={})

    def begin(self) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
        """A new connection's TLS, its buffer for what comes from the socket, and the one for what goes there."""
        incoming = ssl.MemoryBIO()
        outgoing = ssl.MemoryBIO()
        tls = self.context.wrap_bio(incoming, outgoing, server_side=self.server_side, server_hostname=self.server_name)
        return tls, incoming, outgoing


class Texts:
    """PEM files, each as it was when it was first asked for. Those in `known`, by path, are not read."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self.found: dict[str, str] = dict(known or {})

    def read(self, file: Path, setting: str) -> str:
        """Raises TlsFileError."""
        text = self.found.get(str(file))
        if text is None:
            text = self.found[str(file)] = read_text(file, setting)
        return text

    def pick(self, *files: Path | None) -> dict[str, str]:
        """Those of these that there are; all have been read."""
        return {str(file): self.found[str(file)] for file in files if file is not None}

    def __repr__(self) -> str:
        return f"<Texts of {', '.join(self.found)}>"


def client_hop(certificate: Path, key: Path, client_ca: Path | None, *, permissive: bool = False, texts: Texts | None = None) -> Hop:
    """TLS towards clients; with `client_ca` they must have a certificate it vouches for. Raises TlsFileError."""
    texts = texts or Texts()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    own = _load_own(context, certificate, key, texts)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_trusted(context, client_ca, "client_ca", texts)
    return _hop(context, None, own, texts, (certificate, key, client_ca), permissive=permissive)


def upstream_hop(
    ca: Path | None, certificate: Path | None, key: Path | None, server_name: str | None, verify: str, texts: Texts | None = None
) -> Hop:
    """TLS towards a broker. `verify`: "full" (chain and name), "ca" (chain) or "none". Raises TlsFileError."""
    texts = texts or Texts()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.check_hostname = verify == "full"
    context.verify_mode = ssl.CERT_NONE if verify == "none" else ssl.CERT_REQUIRED
    if ca is not None:
        _load_trusted(context, ca, "ca", texts)
    elif verify != "none":
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    own = _load_own(context, certificate, key, texts) if certificate is not None and key is not None else None
    return _hop(context, server_name, own, texts, (ca, certificate, key))


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _hop(
    context: ssl.SSLContext,
    server_name: str | None,
    own: Validity | None,
    texts: Texts,
    files: tuple[Path | None, Path | None, Path | None],
    *,
    permissive: bool = False,
) -> Hop:
    server_side = context.protocol == ssl.PROTOCOL_TLS_SERVER
    found = texts.pick(*files)
    fingerprint = hash(tuple(None if file is None else found[str(file)] for file in files))  # each for itself: two may be the same file
    return Hop(context, server_side, server_name, own, fingerprint, permissive=permissive, texts=found)


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """A path under which OpenSSL finds the text meanwhile. Raises OSError: no descriptor is left."""
    try:
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC | MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        descriptor = os.memfd_create("pem")
    try:
        data = text.encode("latin-1")
        while data:
            data = data[os.write(descriptor, data) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path, texts: Texts) -> Validity:
    found = validities(certificate, "certificate", texts.read)
    text = texts.read(key, "key")
    if "PRIVATE KEY-----" not in text:
        raise TlsFileError("key", f"{key} holds no private key in PEM form", "a private key begins with -----BEGIN PRIVATE KEY-----")
    if "ENCRYPTED" in text:
        raise _password(key)

    def refuse() -> str:
        raise _password(key)

    try:
        with _in_memory(texts.read(certificate, "certificate")) as chain, _in_memory(text) as private:
            context.load_cert_chain(chain, private, password=refuse)
    except ssl.SSLError as error:
        if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
            raise TlsFileError(
                "key", f"{key} is not the key of the certificate in {certificate}", "name the two that belong together"
            ) from None
        if error.reason in {"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"}:
            raise TlsFileError(
                "certificate", f"{certificate} is too weak ({error.reason.lower().replace('_', ' ')})", "have one made of today's strength"
            ) from None
        raise TlsFileError("key", f"{key} cannot be used: {_reason(error)}", "write it again, in PEM form") from None
    except OSError as error:  # no descriptor is left
        raise TlsFileError("key", f"{key} and {certificate} cannot be used: {error.strerror}", "try again") from None
    return Validity(max(each.since for each in found), min(each.until for each in found))


def _password(key: Path) -> TlsFileError:
    return TlsFileError("key", f"{key} has a password, which is not supported", f"take it off: openssl pkey -in {key} -out FILE; chmod 600")


def _load_trusted(context: ssl.SSLContext, file: Path, setting: str, texts: Texts) -> None:
    validities(file, setting, texts.read)
    try:
        with _in_memory(texts.read(file, setting)) as path:
            context.load_verify_locations(cafile=path)
    except OSError as error:  # ssl.SSLError is one
        raise TlsFileError(setting, f"{file} cannot be used: {_reason(error)}", "write it again, in PEM form") from None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "unknown").lower().replace("_", " ")
    return error.strerror or str(error)


# ---- words for errors ----------------------------------------------------------------------------------------------

# OpenSSL's reason -> (label of sluice_tls_failures_total, words)
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": ("no_certificate", "the peer has shown no certificate, and one is required"),
    "UNSUPPORTED_PROTOCOL": ("version", "the peer speaks no TLS version that is allowed here (1.2 and later)"),
    "TLSV1_ALERT_PROTOCOL_VERSION": ("version", "the peer allows no TLS version in common (here: 1.2 and later)"),
    "NO_SHARED_CIPHER": ("cipher", "there is no cipher in common"),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": ("refused", "the peer found no cipher or signature in common, or misses a certificate"),
    "TLSV1_ALERT_UNKNOWN_CA": ("refused", "the peer does not know the CA of the certificate it was shown"),
    "SSLV3_ALERT_BAD_CERTIFICATE": ("refused", "the peer did not accept the certificate it was shown"),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": ("refused", "the peer did not accept the certificate it was shown"),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": ("refused", "the peer finds the certificate it was shown expired"),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": ("refused", "the peer finds the certificate it was shown revoked"),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": ("refused", "the peer requires a certificate and was shown none"),
    "WRONG_VERSION_NUMBER": ("not_tls", "the peer does not speak TLS"),
    "PACKET_LENGTH_TOO_LONG": ("not_tls", "the peer does not speak TLS"),
    "HTTP_REQUEST": ("not_tls", "the peer speaks HTTP without TLS"),
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": ("damaged", "a record was damaged on its way"),
}
# X509_V_ERR_* -> (label, words); the rest is OpenSSL's own text
_VERIFICATION: Final = {
    9: ("not_yet_valid", "the peer's certificate does not hold yet"),
    10: ("expired", "the peer's certificate has expired"),
    18: ("unknown_ca", "the peer's certificate is signed by itself, and not among those trusted"),
    19: ("unknown_ca", "the chain of the peer's certificate ends in a CA that is not trusted"),
    20: ("unknown_ca", "the CA of the peer's certificate is not among those trusted"),
    21: ("unknown_ca", "the CA of the peer's certificate is not among those trusted"),
    62: ("wrong_host", "the peer's certificate is for another host"),
    64: ("wrong_host", "the peer's certificate is for another address"),
}
REASONS: Final = tuple(  # every label there is
    sorted({"certificate", "closed", "other", "timeout", *(label for label, _ in (*_REASONS.values(), *_VERIFICATION.values()))})
)


def explain(error: ssl.SSLError) -> tuple[str, str]:
    """What a TLS error means: (a label from a fixed set, words for operators)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        known = _VERIFICATION.get(error.verify_code)
        if known is None:
            return "certificate", f"the peer's certificate is not good: {error.verify_message}"
        detail = str(error.verify_message) if known[0] == "wrong_host" else ""
        return known[0], f"{known[1]} ({detail})" if detail else known[1]
    if isinstance(error, ssl.SSLEOFError):
        return "closed", "the peer closed the connection"
    return _REASONS.get(error.reason or "", ("other", _reason(error)))
