"""A real systemd as the first process of namespaces of its own: it starts units on a root that has nothing of this machine to change.

The root is made of tmpfs. /usr is bound into it, and into /opt the source tree and its environment, as a unit's sandbox hides /tmp and
homes; all three are read-only. /etc, /var, /run and /tmp are empty but for what is put there, and the machine's own are not in it. Or the
root is a Debian that was unpacked in a folder: then all is that one's, and can be changed. systemd finds only the units that a test gives
it, and bare targets: none of the distribution's, which clean /tmp and set kernel parameters, as if a machine was booted. Processes are in
a control group of their own, which goes with them. Network and processor are shared with the machine. Needs root.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from support.gateways import command
from support.pages import ROOT
from support.processes import Process, wait_until

TARGETS: Final = (
    "sysinit", "basic", "shutdown", "umount", "final", "sockets", "timers", "paths", "slices", "multi-user", "network-online", "network",
    "local-fs", "local-fs-pre", "time-set", "time-sync", "tests",
)  # fmt: skip
BOUND: Final = {sys.prefix: "/opt/environment", str(ROOT): "/opt/source"}  # the first may lie in the second
BOOT: Final = """
set -eu
root=$1 files=$2 machine=$3; shift 3
mount --make-rprivate /
if [ -n "$machine" ]; then mount --bind "$machine" "$root"; else mount -t tmpfs tmpfs "$root"; fi
cd "$root"
mkdir -p usr etc var/lib var/log run tmp proc sys dev root home old
mount -t tmpfs tmpfs dev  # or systemd would mount the machine's own
mount -t tmpfs tmpfs run
mkdir dev/shm dev/pts dev/mqueue run/lock
ln -s pts/ptmx dev/ptmx
chmod 1777 tmp dev/shm
if [ -z "$machine" ]; then
    for name in bin sbin lib lib64; do [ ! -L "/$name" ] || ln -s "$(readlink "/$name")" "$name"; done
    while [ $# != 0 ]; do mkdir -p "./$2"; mount --rbind "$1" "./$2"; mount -o remount,bind,ro "./$2"; shift 2; done
    for name in ld.so.cache nsswitch.conf passwd group localtime; do [ ! -e /etc/$name ] || cp -L /etc/$name etc/$name; done
fi
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mount -t tmpfs tmpfs usr/lib/systemd/system
for name in usr/lib/systemd/system-generators usr/lib/systemd/system-environment-generators; do
    [ ! -d $name ] || mount -t tmpfs tmpfs $name
done
touch dev/kmsg
cp -r "$files"/. .
echo 0123456789abcdef0123456789abcdef > etc/machine-id
mount -t proc proc proc
mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup
pivot_root . old
umount -l /old
mount --make-rshared /  # as a machine's are: the credentials of a unit are mounted in a namespace of their own, and shown from there
exec env -i container=test PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd --system --unit=tests.target \\
    --log-target=kmsg --log-level=info --show-status=no
"""


def own_group() -> Path:
    """A new control group, of version 2: where the machine has both versions its folder is `unified`."""
    top = Path("/sys/fs/cgroup")
    top = top if (top / "cgroup.procs").exists() else top / "unified"
    made = top / f"sluice-tests-{os.getpid()}-{time.monotonic_ns()}"
    made.mkdir()
    return made


def emptied(group: Path) -> bool:
    """Remove a control group with those in it; False while there are processes in one."""
    try:
        for folder in sorted((each for each in group.rglob("*") if each.is_dir()), reverse=True):
            folder.rmdir()
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class SystemdNamespace:
    """A context manager. `files`: what is on its root, by path, such as etc/systemd/system/sluice.service.

    Where a unit of these runs /usr/bin/sluice, the `sluice` under test runs; on the root of another `machine`, what is installed there.
    Leaving kills systemd, and with it all that it started.
    """

    def __init__(self, folder: Path, files: Mapping[str, str], machine: Path | None = None) -> None:
        self._folder = folder
        self._machine = machine
        self._said = folder / "boot.log"
        # /usr is read-only, so the command is on another path. The script that is installed names its interpreter by a path that is not
        # there, also where a gateway starts the next one by its own command.
        argv = command()
        words = [sys.executable, "-m", "sluice"] if Path(argv[0]).is_relative_to(sys.prefix) else argv
        for outside, inside in BOUND.items():
            words = [word.replace(outside, inside) for word in words]
        program = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
        targets = {f"etc/systemd/system/{name}.target": "[Unit]\nDefaultDependencies=no\n" for name in TARGETS}
        # There is no journal: what services say goes to a file, and systemd's own words to another that it takes for the kernel's log.
        output = "[Service]\nStandardOutput=append:/run/services.log\nStandardError=append:/run/services.log\n"
        targets["etc/systemd/system/service.d/output.conf"] = output
        made = {**targets, **files}
        if machine is None:
            made = {name: text.replace("/usr/bin/sluice", "/opt/sluice/bin/sluice") for name, text in made.items()}
            made["opt/sluice/bin/sluice"] = program
        for name, text in made.items():
            path = folder / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)

    def __enter__(self) -> SystemdNamespace:
        root = self._folder / "root"
        root.mkdir()
        python = str(Path(sys.executable).resolve().parents[1])
        bound = [word for pair in {"/usr": "/usr", python: python, **BOUND}.items() for word in pair]
        self._group = own_group()
        joined = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self._group)]
        words = [*joined, "unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--cgroup"]
        argv = [*words, "sh", "-c", BOOT, "boot", str(root), str(self._folder / "files"), str(self._machine or ""), *bound]
        self._unshare = Process(argv, log=self._said)
        try:
            self._unshare.wait_until(self._up, within=60, what="systemd")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pid = self._pid()
        if pid:
            os.kill(pid, 9)  # the first process of a namespace of its own: all others there end with it
        self._unshare.stop()
        wait_until(lambda: emptied(self._group), within=20, what="the control group is left by all")

    def _pid(self) -> int:
        """systemd's, as the machine counts; 0 before it is there."""
        pid = self._unshare.popen.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        found = children.read_text().split() if children.exists() else []
        return int(found[0]) if found else 0

    def _up(self) -> bool:
        return bool(self._pid()) and self.systemctl("is-active", "tests.target", check=False).stdout.strip() == "active"

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command in there."""
        inside = ["nsenter", "-t", str(self._pid()), "-m", "-p", "-u", "-i", "-C", "-r", "-w", *words]
        own = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "TERM": "dumb"}
        environment = os.environ if self._machine is None else own
        done = subprocess.run(inside, env=environment, capture_output=True, text=True, timeout=180, check=False)
        assert not check or done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}\n{self.log()}"
        return done

    def type(self, block: str, **environment: str) -> str:
        """A block of a page, typed by root at home; its output."""
        variables = [f"{name}={value}" for name, value in environment.items()]
        return self.run("env", *variables, "sh", "-euc", f"cd /root\n{block}").stdout

    def systemctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("/usr/bin/systemctl", *words, check=check)

    def show(self, unit: str, key: str) -> str:
        return self.systemctl("show", unit, f"--property={key}", "--value").stdout.strip()

    def main_pid(self, unit: str) -> int:
        """As the namespace counts."""
        return int(self.show(unit, "MainPID") or 0)

    def wait_for(self, unit: str, key: str, value: str, within: float = 30) -> None:
        wait_until(lambda: self.show(unit, key) == value, within=within, what=f"{unit} {key}={value}")

    def log(self) -> str:
        """What systemd said, and its services."""
        return self.run("sh", "-c", "cat /dev/kmsg /run/services.log 2>/dev/null; true", check=False).stdout + self._said.read_text()

    def __repr__(self) -> str:
        return f"<SystemdNamespace {self._pid()}>"
