"""`sluice support-bundle`: one archive with what somebody needs to help, and nothing that is secret."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from cli.client import AdminClient
from cli.configured import USUAL
from cli.exits import CommandError
from cli.output import clean, emit, print_status
from cli.verb import Remote, Verb, reaching
from common.failures import FAILED, OK, UNREACHABLE
from common.figures import pluralise
from common.masking import mask_secrets

MAX_ITEMS: Final = 2000  # items; of one list (topics, connections ...)
MAX_LOG_LINES: Final = 2000  # lines; the last of the log file
MAX_LOG_BYTES: Final = 4 << 20  # bytes; looked at from the end of the log file
STARS: Final = "********"
LISTS: Final = ("limits", "topics", "connections", "history", "audit")  # of the admin API, page by page
ONES: Final = ("status", "config", "events", "quotas/status")  # in one answer
WHOLE: Final = ("listeners", "rules")  # all pages, in the form of one answer; bounded by the configuration and by what is added live
PROBES: Final = ("livez", "readyz")
SECRET: Final = re.compile(r"(?i)password|passwd|secret|credential|token$|private_?key|authorization|cookie")
FILE_NAMES: Final = re.compile(r"(?i)(_file|directory)$")
CLIENT_PROPERTIES: Final = frozenset({"product", "version", "platform", "connection_name"})  # the rest is the application's own
BUNDLE_EXAMPLE: Final = """\
sluice support-bundle
sluice support-bundle --log /var/log/sluice/sluice.log -o incident-12.tar.gz"""


@dataclass(slots=True)
class Bundle:
    """The parts of an archive, by name. `secrets`: texts that must not stand in any of them."""

    secrets: list[str] = field(default_factory=list)
    parts: dict[str, bytes] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # name -> reason

    def put(self, name: str, content: str | bytes) -> None:
        data = content.encode(errors="replace") if isinstance(content, str) else content
        for secret in self.secrets:
            data = data.replace(secret.encode(), STARS.encode())
        self.parts[name] = data

    def attempt(self, name: str, make: Callable[[], str]) -> CommandError | None:
        """Add what `make` gives; where it fails, the reason stands in the list of contents. Returns the error, if any."""
        try:
            self.put(name, make())
        except CommandError as error:
            self.failed[name] = error.message
            return error
        except (OSError, ValueError) as error:
            self.failed[name] = str(error)
        return None

    def rows(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = [{"file": name, "bytes": len(data), "missing": None} for name, data in self.parts.items()]
        return shown + [{"file": name, "bytes": None, "missing": reason} for name, reason in self.failed.items()]


def redact(value: Any) -> Any:
    """JSON without what looks like a secret: by the name of a member, or within a URL. Of client properties only what names the library."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for name, inner in value.items():
            if SECRET.search(name) and not FILE_NAMES.search(name) and isinstance(inner, str) and inner:
                found[name] = STARS
            elif name == "client_properties" and isinstance(inner, dict):
                found[name] = {key: redact(each) for key, each in inner.items() if key in CLIENT_PROPERTIES}
            else:
                found[name] = redact(inner)
        return found
    if isinstance(value, list):
        return [redact(inner) for inner in value]
    return mask_secrets(value) if isinstance(value, str) else value


def as_json(value: Any) -> str:
    return json.dumps(redact(value), indent=1, ensure_ascii=False)


# ---- its parts ---------------------------------------------------------------------------------------------------------


def ask_gateway(bundle: Bundle, client: AdminClient) -> bool:
    """Add what the gateway answers; whether it answers at all."""
    reached = True

    def attempt(name: str, make: Callable[[], str]) -> None:
        nonlocal reached
        if not reached:
            bundle.failed[name] = "the gateway cannot be reached"
            return
        error = bundle.attempt(name, make)
        reached = error is None or error.code != UNREACHABLE

    for probe in PROBES:
        attempt(f"{probe}.json", lambda probe=probe: as_json(client.ask("GET", f"/{probe}").body))  # type: ignore[misc]
    for one in ONES:
        query = {"limit": "500"} if one == "events" else None
        attempt(
            f"{one.replace('/', '-')}.json",
            lambda one=one, query=query: as_json(client.ask("GET", f"/v1/{one}", query=query).body),  # type: ignore[misc]
        )
    for whole in WHOLE:
        attempt(f"{whole}.json", lambda whole=whole: as_json(client.whole(f"/v1/{whole}")))  # type: ignore[misc]
    for each in LISTS:
        attempt(f"{each}.json", lambda each=each: as_json(list(client.items(f"/v1/{each}", most=MAX_ITEMS))))  # type: ignore[misc]
    attempt("metrics.txt", lambda: str(client.ask("GET", "/metrics").body))
    return reached


def this_host(environ: Mapping[str, str]) -> dict[str, Any]:
    """Versions and bounds of this host, which need not be the gateway's."""
    import resource
    from importlib import metadata

    from gateway.build import build

    facts = build()
    packages = {}
    for name in ("trio", "h11", "msgspec", "PyYAML", "pamqp", "click"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "-"
    return {
        "sluice": facts.version, "build": facts.kind, "python": facts.python, "platform": platform.platform(),
        "processors": os.cpu_count(), "load": os.getloadavg(), "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "packages": packages, "variables": sorted(name for name in environ if name.startswith("SLUICE_")),
    }  # fmt: skip


def check_file(file: Path) -> str:
    """What `sluice check` and `config show --origin` say of a configuration file."""
    from cli.local import leaves
    from config import ConfigError, lint, load

    try:
        settings = load(file, os.environ)
    except ConfigError as error:
        return f"{file}: {pluralise(len(error.errors), 'error')}\n" + "\n".join(problem.headline for problem in error.errors) + "\n"
    lines = [f"{file}: good; {pluralise(len(settings.listeners), 'listener')}, {pluralise(len(settings.rules), 'rule')}"]
    lines += [f"warning: {warning.headline}" for warning in lint(settings)]
    lines += [f"{path} = {value}    ({settings.origin(path)})" for path, value in leaves(redact(settings.describe()), "")]
    return "\n".join(lines) + "\n"


def read_last_lines(file: Path) -> str:
    with file.open("rb") as opened:
        opened.seek(max(0, opened.seek(0, os.SEEK_END) - MAX_LOG_BYTES))
        lines = opened.read().decode(errors="replace").splitlines()
    return "\n".join(mask_secrets(line) for line in lines[-MAX_LOG_LINES:]) + "\n"


def usual_file() -> Path | None:
    named = os.environ.get("SLUICE_CONFIG")
    return Path(named) if named else next((usual for usual in USUAL if usual.is_file()), None)


def archive(bundle: Bundle, target: Path, folder: str) -> None:
    """Write the parts; mode 0600, and never over another file. Raises CommandError."""
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(FAILED, f"{target} is there already; give another name with -o") from None
    except OSError as error:
        raise CommandError(FAILED, f"{target} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in bundle.parts.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            tar.addfile(entry, io.BytesIO(data))


@click.command("support-bundle", cls=Verb, example=BUNDLE_EXAMPLE)
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), help="The archive; default: sluice-support-TIME.tar.gz, here.")
@click.option("-c", "--config", type=click.Path(path_type=Path), help="A configuration to check; default: as `sluice run` finds it.")
@click.option("--log", type=click.Path(path_type=Path), help="The gateway's log, where it goes to a file: its last lines are added.")
@reaching
@click.pass_context
def support_bundle(ctx: click.Context, /, remote: Remote, target: Path | None, config: Path | None, log: Path | None) -> None:
    """Collect what somebody needs to help into one archive, and list what it holds.

    Status, configuration with origins, listeners, limits, rules, topics, connections, events, history, audit, metrics, versions, the output
    of `check`. Tokens, passwords and messages are not in it; names of topics and users and addresses of clients are. A gateway that does
    not answer, or answers in part only, leaves the rest: the list says what is missing, and why. Exit code 4: it did not answer at all.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = f"sluice-support-{stamp}"
    client = remote.client
    bundle = Bundle(secrets=[client.secret] if client.secret else [])
    bundle.put("host.json", as_json(this_host(os.environ)))
    reached = ask_gateway(bundle, client)
    file = config or usual_file()
    if file is not None:
        bundle.attempt("check.txt", lambda: check_file(file))
    if log is not None:
        bundle.attempt("log.txt", lambda: read_last_lines(log))
    bundle.put("contents.json", json.dumps({"at": stamp, "admin": client.url, "parts": bundle.rows()}, indent=1))
    target = target or Path(f"{folder}.tar.gz")
    archive(bundle, target, folder)
    emit("table", bundle.rows())
    print_status(f"written: {clean(target)}, {target.stat().st_size:,} bytes. Tokens, passwords and messages are not in it;")
    print_status("names of topics and users and addresses of clients are: look it through before you pass it on.")
    ctx.exit(OK if reached else UNREACHABLE)
