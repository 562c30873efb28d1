"""The files of TLS: read and tried whenever a configuration is loaded, so that a broken one never reaches a connection.

A reload loads the configuration anew. Where a file is broken the reload fails with file and reason, and TLS stays as it is.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.tls.certificates import TlsFileError, Validity, certificates, validities, vouches
from config.kinds import Reading
from config.known_settings import AdminTls, ListenerSettings, ListenerTls, RedisTls, UpstreamTls, WebhookSettings
from config.problems import ConfigProblem

if TYPE_CHECKING:
    from common.tls.context import Hop, Texts
    from config.settings import Settings

SOON_S: Final = 30 * 86_400  # seconds to a certificate's end; as kubeadm and cert-manager warn (Let's Encrypt's first mail: 20 days)


def hops(listener: ListenerSettings, texts: Texts | None = None) -> tuple[Hop | None, Hop | None]:
    """The TLS of a listener's two hops, towards clients and towards its brokers; None: plain. Raises TlsFileError.

    Files in `texts` are not read. The second one names no broker where `server_name` is not set: see `Hop.copy_for_host`.
    """
    tls = listener.tls
    upstream = listener.upstream_tls
    return None if tls is None else _client_hop(tls, texts), None if upstream is None else _upstream_hop(upstream, None, texts)


def admin_hop(tls: AdminTls) -> Hop:
    """The TLS of the admin API. Raises TlsFileError."""
    return _client_hop(tls)


def webhook_hop(ca: Path | None, host: str) -> Hop:
    """TLS towards the receiver of a webhook, which is always verified. Raises TlsFileError."""
    return _upstream_hop(UpstreamTls(ca), host.removesuffix("."))


def _client_hop(tls: ListenerTls | AdminTls, texts: Texts | None = None) -> Hop:
    from common.tls.context import client_hop  # late, as below: a command line without TLS starts without OpenSSL

    permissive = isinstance(tls, ListenerTls) and tls.mode == "permissive"
    return client_hop(tls.certificate, tls.key, tls.client_ca, permissive=permissive, texts=texts)


def _upstream_hop(tls: UpstreamTls, host: str | None, texts: Texts | None = None) -> Hop:
    from common.tls.context import upstream_hop

    return upstream_hop(tls.ca, tls.certificate, tls.key, tls.server_name or host, tls.verify, texts)


def check_tls_files(reading: Reading) -> None:
    """Every file of TLS can be read and used, keys belong to their certificates."""
    for path, value in reading.sections:
        if isinstance(value, UpstreamTls | RedisTls) and (value.certificate is None) != (value.key is None):
            given, missing = ("certificate", "key") if value.key is None else ("key", "certificate")
            inner = f"{path}.{given}"
            reading.add_problem(inner, f"stands without {missing}", f"add {missing}: FILE.pem")
            continue
        try:
            if isinstance(value, ListenerTls | AdminTls) and Path() not in {value.certificate, value.key, value.client_ca}:
                _client_hop(value)
            elif isinstance(value, UpstreamTls) and Path() not in {value.ca, value.certificate, value.key}:
                _upstream_hop(value, "")
            elif isinstance(value, RedisTls) and Path() not in {value.ca, value.certificate, value.key}:
                _upstream_hop(UpstreamTls(value.ca, value.certificate, value.key, None, value.verify), "")
            elif isinstance(value, WebhookSettings) and value.ca is not None and value.ca != Path():
                webhook_hop(value.ca, "")
        except TlsFileError as error:
            inner = f"{path}.{error.setting}"
            reading.add_problem(inner, error.message, error.remedy)


def find_ending_certificates(settings: Settings) -> Iterator[ConfigProblem]:
    """The gateway's own certificates, and their CAs', that expire soon, have expired, or are not valid yet."""
    for number, listener in enumerate(settings.listeners):
        for name, tls in (("tls", listener.tls), ("upstream_tls", listener.upstream_tls)):
            if tls is not None and tls.certificate is not None:
                periods = validities(tls.certificate, "certificate")
                path = f"listeners[{number}].{name}.certificate"
                yield from _ending(settings, path, tls.certificate, min(periods, key=lambda each: each.until))
    if settings.admin.tls is not None:
        file = settings.admin.tls.certificate
        yield from _ending(settings, "admin.tls.certificate", file, min(validities(file, "certificate"), key=lambda each: each.until))


def find_tls_risks(settings: Settings) -> Iterator[ConfigProblem]:
    """Certificates that expire, CAs that are none, keys others can read, brokers not verified, SASL EXTERNAL behind a gateway."""
    yield from find_ending_certificates(settings)
    for number, listener in enumerate(settings.listeners):
        for name, tls in (("tls", listener.tls), ("upstream_tls", listener.upstream_tls)):
            if tls is None:
                continue
            path = f"listeners[{number}].{name}"
            if tls.key is not None and stat.S_IMODE(tls.key.stat().st_mode) & 0o007:
                yield settings.make_problem(f"{path}.key", f"{tls.key} can be read by others", f"chmod o= {tls.key}")
        upstream = listener.upstream_tls
        client_ca = None if listener.tls is None else listener.tls.client_ca
        if client_ca is not None and listener.tls is not None and listener.tls.mode == "permissive":
            message = "a client without TLS needs no certificate, so tls.client_ca keeps no client out"
            yield settings.make_problem(f"listeners[{number}].tls.mode", message, "set mode: enforcing, or take client_ca out")
        for key, file in (("tls.client_ca", client_ca), ("upstream_tls.ca", None if upstream is None else upstream.ca)):
            if file is not None and not _cas(file):
                message = f"{file} holds a certificate that is no CA's, so it verifies no peer"
                yield settings.make_problem(f"listeners[{number}].{key}", message, "name the certificate of the CA that signed the peers'")
        if upstream is not None and upstream.verify != "full":
            path = f"listeners[{number}].upstream_tls.verify"
            what = "is not verified" if upstream.verify == "none" else "may be for any host"
            remedy = "set verify: full, with ca and server_name where the broker's certificate needs them"
            yield settings.make_problem(
                path, f"the broker's certificate {what}: an attacker who redirects the connection can read it", remedy
            )
        if upstream is not None and upstream.certificate is not None:
            yield settings.make_problem(f"listeners[{number}].upstream_tls.certificate", *_lent(listener))
    admin = settings.admin.tls
    if admin is not None and stat.S_IMODE(admin.key.stat().st_mode) & 0o007:
        yield settings.make_problem("admin.tls.key", f"{admin.key} can be read by others", f"chmod o= {admin.key}")
    if admin is not None and admin.client_ca is not None and not _cas(admin.client_ca):
        message = f"{admin.client_ca} holds a certificate that is no CA's, so it verifies no peer"
        yield settings.make_problem("admin.tls.client_ca", message, "name the certificate of the CA that signed the operators'")


def _lent(listener: ListenerSettings) -> tuple[str, str]:
    """The consequence of showing the gateway's certificate to the broker for every client, and the way out."""
    verified = listener.tls is not None and listener.tls.client_ca is not None
    if not listener.speaks.authenticates_users:
        message = "to the broker, every client of this listener is the holder of this certificate"
        return message, "admit only trusted clients, with tls.client_ca or by the network, and keep the broker's own ACL"
    if verified:
        message = "to the broker, every client that logs in with SASL EXTERNAL is the user of this certificate"
        return message, "let clients log in with PLAIN inside TLS, or leave certificate and key out, so that the broker offers no EXTERNAL"
    message = (
        "the broker sees this certificate for every client; SASL EXTERNAL is refused here to clients without a certificate of their own"
    )
    return message, "let clients log in with PLAIN; leave certificate and key out if the broker does not ask for them"


def _cas(file: Path) -> bool:
    """Whether every certificate in the file is a CA's. True where that cannot be read, since OpenSSL has accepted the file."""
    try:
        return all(vouches(der) for der in certificates(file, "ca"))
    except ValueError:
        return True


def _ending(settings: Settings, path: str, file: Path, validity: Validity) -> Iterator[ConfigProblem]:
    now = time.time()
    left = validity.until - now
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(validity.until))
    if left <= 0:
        yield settings.make_problem(
            path, f"{file} expired on {day}: clients that verify it refuse to connect", "have it renewed, then reload"
        )
    elif left < SOON_S:
        yield settings.make_problem(path, f"{file} expires on {day}, in {int(left // 86_400)} days", "have it renewed, then reload")
    if validity.since > now:
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(validity.since))
        yield settings.make_problem(path, f"{file} is not valid before {day}", "set the clock, or wait")
