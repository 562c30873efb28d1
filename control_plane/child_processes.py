"""Child processes of a gateway: the same program, with the modules that this process has found."""

from __future__ import annotations

import os
import sys


def python(module: str, *words: str) -> list[str]:
    """The command. `-P` keeps the current directory out of it, where anybody may have put a folder `gateway`."""
    return [sys.executable, "-P", "-m", module, *words]


def child_environment() -> dict[str, str]:
    """This process's environment, without what systemd means for it alone, and with the path of the modules that it has found itself."""
    found = {name: text for name, text in os.environ.items() if name != "NOTIFY_SOCKET" and not name.startswith(("LISTEN_", "WATCHDOG_"))}
    return {**found, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
