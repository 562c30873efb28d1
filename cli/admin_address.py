"""Where an admin API is, and how to connect to it: `http://host:port`, `https://host:port`, `unix:/path/admin.sock`.

The errors of TLS say what is wrong with which certificate, and which option changes that.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cli.exits import CommandError
from common.bounded_socket import Allowance, bounded
from common.failures import UNREACHABLE, USAGE
from common.masking import mask_secrets
from common.records import dataclass

if TYPE_CHECKING:
    import http.client
    import ssl

UNIX: Final = "unix:"
FORMS: Final = "write it like http://127.0.0.1:9180, https://HOST:9180, or unix:/path/admin.sock"
EXPIRED: Final = 10  # X509_V_ERR_* of OpenSSL
NOT_YET_VALID: Final = 9
OTHER_NAME: Final = frozenset({62, 64})
UNKNOWN_CA: Final = frozenset({18, 19, 20, 21})


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The files of TLS on the client's side; None: the system's CAs, and no certificate of one's own."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ClientTls:
        """As the environment says."""
        names = ("SLUICE_CA_FILE", "SLUICE_CLIENT_CERTIFICATE", "SLUICE_CLIENT_KEY")
        return cls(*(Path(environ[name]) if environ.get(name) else None for name in names))

    def context(self) -> ssl.SSLContext:
        """Raises CommandError where a file cannot be used."""
        import ssl

        if self.key is not None and self.certificate is None:
            raise CommandError(USAGE, "--client-key stands without --client-certificate; name both, or the certificate's file has its key")
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except OSError as error:  # ssl.SSLError is one
            raise CommandError(
                USAGE, f"the CA file {self.ca} cannot be used: {_reason(error)}; it holds CERTIFICATE blocks (PEM)"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except OSError as error:
                files = self.certificate if self.key is None else f"{self.certificate} with {self.key}"
                raise CommandError(USAGE, f"the client certificate {files} cannot be used: {_reason(error)}") from None
        return context


@dataclass(frozen=True, slots=True)
class AdminAddress:
    """A parsed --admin. `url` is without user and password."""

    url: str
    scheme: str  # http, https or unix
    host: str
    port: int
    path: str = ""  # of a Unix socket

    @classmethod
    def of(cls, text: str) -> AdminAddress:
        """Raises CommandError."""
        if text.startswith(UNIX):
            path = text.removeprefix(UNIX)
            path = "/" + path.lstrip("/") if path.startswith("//") else path
            if not path or path == "/":
                raise CommandError(USAGE, f"--admin {text}: names no socket; {FORMS}")
            return cls(text, "unix", "localhost", 0, path)
        parts = urlsplit(text if "//" in text else f"http://{text}")
        try:
            host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise CommandError(USAGE, f"--admin {mask_secrets(text)}: not the address of an admin API; {FORMS}") from None
        if parts.scheme not in {"http", "https"} or not host or parts.path not in {"", "/"}:
            raise CommandError(USAGE, f"--admin {mask_secrets(text)}: not the address of an admin API; {FORMS}")
        return cls(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.scheme, host, port)

    @property
    def local(self) -> bool:
        """Whether the gateway there is one of this machine, so that its own token may be sent to it."""
        host = self.host
        return self.scheme == "unix" or host in {"localhost", "::1"} or (host.startswith("127.") and host.replace(".", "").isdigit())

    def connection(self, tls: ClientTls, timeout_s: float, allowance: Allowance | None = None) -> http.client.HTTPConnection:
        """Not connected yet. `timeout_s` is for one read, `allowance` for the whole exchange; None: it has no end. Raises CommandError."""
        import http.client  # here, because it brings ssl and email, which `sluice run` need not wait for

        options: dict[str, Any] = {"timeout": timeout_s}
        kind: type[Any] = http.client.HTTPConnection
        if self.scheme == "unix":
            kind = _unix_connection(self.path)
        elif self.scheme == "https":
            kind = http.client.HTTPSConnection
            options["context"] = tls.context()
        if allowance is not None:
            kind = bounded(kind, "connect", allowance)
        made: http.client.HTTPConnection = kind(self.host or "localhost", self.port, **options)
        return made

    def unreachable(self, error: Exception, tls: ClientTls) -> CommandError:
        """What to tell of an error on the way to the gateway."""
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return CommandError(UNREACHABLE, f"{self.url}: {_distrust(error, self.host, tls)}")
        if isinstance(error, ssl.SSLError):
            return CommandError(UNREACHABLE, f"{self.url}: {_tls_fault(error, tls)}")
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if self.scheme == "unix":
            remedy = "is the gateway running, and is this its admin.socket? Only the gateway's own user and root may connect"
        elif self.scheme == "http" and isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
            remedy = "is the gateway running, is --admin right? With admin.tls it is https://"
        elif self.scheme == "https" and isinstance(error, ConnectionResetError):
            remedy = "the gateway closed the connection: with admin.tls.client_ca it wants --client-certificate"
        else:
            remedy = "is the gateway running, is --admin right?"
        return CommandError(UNREACHABLE, f"{self.url} cannot be reached: {reason}; {remedy}")


def _unix_connection(path: str) -> type[http.client.HTTPConnection]:
    import http.client

    class UnixConnection(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            try:
                self.sock.connect(path)
            except OSError:
                self.sock.close()
                raise

    return UnixConnection


def _distrust(error: ssl.SSLCertVerificationError, host: str, tls: ClientTls) -> str:
    """Why the gateway's certificate is not believed, and the way out."""
    code = error.verify_code
    if code == EXPIRED:
        return "the gateway's certificate has expired; have it renewed, then reload the gateway"
    if code == NOT_YET_VALID:
        return "the gateway's certificate is not valid yet; see the clocks of both hosts"
    if code in OTHER_NAME:
        return f"the gateway's certificate is for another name than {host} ({error.verify_message}); use a name that it has, or renew it"
    if code in UNKNOWN_CA:
        known = "the system's CAs" if tls.ca is None else str(tls.ca)
        return f"the gateway's certificate is of a CA that is not among {known}; name its CA with --ca-file (SLUICE_CA_FILE)"
    return f"the gateway's certificate is not good: {error.verify_message}"


def _tls_fault(error: ssl.SSLError, tls: ClientTls) -> str:
    text = _reason(error)
    reason = error.reason or ""
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        return "the gateway does not speak TLS here; use http://"
    if any(word in reason for word in ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "UNKNOWN_CA", "BAD_CERTIFICATE", "UNEXPECTED_EOF")):
        if tls.certificate is None:
            return f"the gateway wants a client certificate (admin.tls.client_ca): --client-certificate and --client-key ({text})"
        return f"the gateway does not accept {tls.certificate}; is it of a CA in its admin.tls.client_ca, and has it not expired? ({text})"
    return f"TLS failed: {text}"


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return reason.lower().replace("_", " ") if isinstance(reason, str) else error.strerror or str(error)


def _no_password() -> str:
    raise CommandError(USAGE, "the client key has a password, which is not supported; take it off: openssl pkey -in KEY -out FILE")
