"""Java for the tests: jars from Maven Central and compiled sources, both kept under build/ and made only once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from support.environments import one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "java"
POMS = Path(__file__).parent / "brokers" / "maven"

# Short-lived programs on a small machine: the light compiler and the light collector start fastest. Nor are the classes of the jars
# verified: that is a tenth of a client's start (2.5 CPU-s, measured).
FAST_START = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData"]
FAST_START += ["-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]


class JavaMissingError(RuntimeError):
    """A JDK or Maven is not installed; the message says how to mend it."""


class MavenUnreachableError(RuntimeError):
    """The jars are not in the cache and could not be fetched."""


def tool(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise JavaMissingError(f"{name} is not installed: run `make test` (it installs it), or `apt-get install {package}`")
    return path


def jars(name: str) -> Path:
    """The folder of jars that `brokers/maven/NAME.pom.xml` asks for; fetched at the first call (4 to 10 s), then kept.

    Raises MavenUnreachableError, with Maven's own words, where they cannot be fetched.
    """
    with one_at_a_time(CACHE / name):
        return _jars(name)


def _jars(name: str) -> Path:
    pom = POMS / f"{name}.pom.xml"
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    folder = CACHE / name / "lib"
    stamp = CACHE / name / "pom.sha256"
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    tool("java", "openjdk-17-jdk-headless")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    command = [tool("mvn", "maven"), "-q", "-B", "-f", str(pom), *goal]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise MavenUnreachableError(f"Maven could not fetch the jars of {name}: {(done.stdout + done.stderr).strip()[-1500:]}")
    stamp.write_text(wanted)
    return folder


def compiled(sources: Path, jar_set: str, *more: Path) -> str:
    """The class path of all `*.java` in the folder `sources` (and in `more`), compiled against `jar_set`; anew when a source changes."""
    with one_at_a_time(CACHE / jar_set / sources.name):
        return _compiled(sources, jar_set, *more)


def _compiled(sources: Path, jar_set: str, *more: Path) -> str:
    library = jars(jar_set)
    files = [file for folder in (sources, *more) for file in sorted(folder.glob("*.java"))]
    content = [file.read_bytes() for file in [*files, CACHE / jar_set / "pom.sha256"]]
    digest = hashlib.sha256(b"\0".join(content)).hexdigest()[:16]
    classes = CACHE / jar_set / f"{sources.name}-{digest}"
    if not classes.exists():
        partial = classes.with_suffix(f".{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        compiler = tool("javac", "openjdk-17-jdk-headless")
        command = [compiler, "-nowarn", "-proc:none", "-cp", f"{library}/*", "-d", str(partial), *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise RuntimeError(f"javac: {done.stderr}")
        for stale in classes.parent.glob(f"{sources.name}-*"):
            if not stale.suffix:  # one with a suffix is being filled, by this run or another
                shutil.rmtree(stale, ignore_errors=True)
        partial.rename(classes)
    return f"{classes}:{library}/*"


def java(
    class_path: str, main: str, home: Path, memory: Sequence[str] = ("-Xmx256m",), properties: dict[str, str] | None = None
) -> list[str]:
    """The command that runs class `main`. `home` becomes Java's user.home: logs and the like go there."""
    settings = {"user.home": str(home), "rocketmq.client.logRoot": str(home / "logs")} | (properties or {})
    defines = [f"-D{name}={value}" for name, value in settings.items()]
    return [tool("java", "openjdk-17-jdk-headless"), *FAST_START, *memory, *defines, "-cp", class_path, main]
