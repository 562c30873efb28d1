"""Our container images: built of a release's pure wheel, unpacked as umoci does it, and run in bubblewrap as a runtime would.

There is no container daemon here: bubblewrap gives what `docker run --read-only --cap-drop ALL --user 65532` would, but for cgroups and the
runtime's seccomp profile.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from support.environments import ROOT
from support.packages import PURE

USER: Final = 65532


def built(released: Path, target: Path, name: str = "sluice") -> Path:
    """The archive of the image `name`, in the folder `target`."""
    words = [sys.executable, str(ROOT / "deploy/container/image.py"), "--image", name, str(released / PURE), str(target)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def described(archive: Path) -> dict[str, Any]:
    """The configuration that runtimes read."""
    words = ["skopeo", "inspect", "--config", f"oci-archive:{archive}"]
    found: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout)["config"]
    return found


def unpacked(archive: Path, folder: Path, copying: str) -> Path:
    """The root filesystem in `folder`, by the command of a page: it copies the archive out of dist/ into a layout in build/."""
    bundle = folder / "bundle"
    (folder / "dist").mkdir()
    (folder / "dist" / archive.name).symlink_to(archive)
    words = re.sub(r"build/[\w-]+", str(folder / "layout"), copying)
    subprocess.run(["sh", "-euc", words], check=True, timeout=600, cwd=folder)
    subprocess.run(["umoci", "unpack", "--image", f"{folder / 'layout'}:new", str(bundle)], check=True, timeout=600, capture_output=True)
    assert json.loads((bundle / "config.json").read_text())["process"]["user"] == {"uid": USER, "gid": USER}
    return bundle / "rootfs"


def contained(root: Path, mounts: Sequence[str], environment: Mapping[str, str], folder: str, *words: str) -> list[str]:
    """The command that runs `words` as the image's user, its root read-only, without capabilities. `mounts`: bubblewrap's options."""
    variables = [word for name, value in environment.items() for word in ("--setenv", name, value)]
    return [
        "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs",
        "bwrap", "--unshare-all", "--share-net", "--cap-drop", "ALL", "--die-with-parent", "--ro-bind", str(root), "/", "--proc", "/proc",
        "--dev", "/dev", *mounts, "--clearenv", *variables, "--chdir", folder, "--", *words,
    ]  # fmt: skip


def reachable(*folders: Path) -> None:
    """Let the image's user come to these folders."""
    for folder in [above for each in folders for above in (each, *each.parents)]:
        if folder.is_relative_to("/dev/shm") or folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
