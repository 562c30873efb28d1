"""Java for the tests: jars from Maven Central and compiled sources, both kept under build/ and made only once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from xml.etree import ElementTree

from support.environments import one_at_a_time
from support.ran import ran

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "java"
POMS = Path(__file__).parent / "brokers" / "maven"
MAVEN = "{http://maven.apache.org/POM/4.0.0}"  # the namespace of poms

# Short-lived programs on a small machine: the light compiler and the light collector start fastest. Nor are the classes of the jars
# verified: that is a tenth of a client's start (2.5 CPU-s, measured). Maven and the compiler take half as long with it, 2.5 to 3 CPU-s.
FAST_START = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData"]
FAST_START += ["-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]
LEARNED = 3  # a name server, a broker and a client, as the run's own broker begins


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
    quick = os.environ | {"MAVEN_OPTS": " ".join([*_proxies(), os.environ.get("MAVEN_OPTS", ""), *FAST_START])}
    for _ in range(3):  # Maven Central may be away for a moment
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=quick)
        if done.returncode == 0:
            break
    else:
        raise MavenUnreachableError(f"Maven could not fetch the jars of {name}: {(done.stdout + done.stderr).strip()[-1500:]}")
    stamp.write_text(wanted)
    return folder


def _proxies() -> list[str]:
    """For Java, which reads no HTTPS_PROXY as pip, npm and apt do."""
    found = []
    for scheme in ("http", "https"):
        proxy = urlsplit(os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY") or "")
        if proxy.hostname:
            found += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    return found


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
        quick = [f"-J{option}" for option in FAST_START]
        command = [compiler, *quick, "-nowarn", "-proc:none", "-cp", f"{library}/*", "-d", str(partial), *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise RuntimeError(f"javac: {done.stderr}")
        for stale in classes.parent.glob(f"{sources.name}-*"):
            if not stale.suffix:  # one with a suffix is being filled, by this run or another
                shutil.rmtree(stale, ignore_errors=True)
        partial.rename(classes)
    return f"{library}/*:{classes}"  # the archive of classes is for what begins with the jars


def java(
    class_path: str, main: str, home: Path, memory: Sequence[str] = ("-Xmx256m",), properties: dict[str, str] | None = None
) -> list[str]:
    """The command that runs class `main`. `home` becomes Java's user.home: logs and the like go there."""
    _tell_what_runs(class_path)
    settings = {"user.home": str(home), "rocketmq.client.logRoot": str(home / "logs")} | (properties or {})
    defines = [f"-D{name}={value}" for name, value in settings.items()]
    options = [*FAST_START, *_shared_classes(class_path), *memory, *defines]
    return [tool("java", "openjdk-17-jdk-headless"), *options, "-cp", class_path, main]


@cache
def _tell_what_runs(class_path: str) -> None:
    """The jars that a pom asks for, not what these bring along; of decoders, which run by themselves, none."""
    jar_set, _, classes = class_path.partition(":")
    if Path(classes).name.startswith("remoting-"):
        return
    library = Path(jar_set).parent
    pom = POMS / f"{library.parent.name}.pom.xml"
    for dependency in ElementTree.parse(pom).iter(f"{MAVEN}dependency") if pom.exists() else ():
        group, artifact, version = (dependency.findtext(f"{MAVEN}{tag}", "") for tag in ("groupId", "artifactId", "version"))
        if (library / f"{artifact}-{version}.jar").exists():
            ran(f"{group}:{artifact}", version)


_sharing: list[subprocess.Popen[bytes]] = []  # what writes an archive; it may end when nobody needs it any more


def _shared_classes(class_path: str) -> list[str]:
    """The options that take RocketMQ's classes from an archive (class data sharing), where a third to a half of a start goes.

    The first LEARNED programs of a set of jars list what they load; whoever comes next starts Java to write the archive (5 CPU-s), beside
    the tests. It is a matter of speed alone: where it is not there, or not of this Java and these jars, Java goes on without a word.
    """
    library = Path(class_path.partition(":")[0]).parent
    if not library.parent.name.startswith("rocketmq"):
        return []
    archive = library / "classes.jsa"
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
    lists = [library / f"classes-{number}.list" for number in range(LEARNED + 1)]
    for mine in lists:
        with suppress(FileExistsError):
            mine.touch(exist_ok=False)
            break
    else:
        return []
    if mine is not lists[-1]:
        return [f"-XX:DumpLoadedClassList={mine}"]
    listed = [line for each in lists for line in each.read_text().splitlines(keepends=True)]
    mine.write_text("".join(sorted({line for line in listed if line.endswith("\n") and line[0] not in "#@"})))  # one may still be written
    draft = archive.with_suffix(".draft")
    write = ["java", "-Xshare:dump", "-Xlog:disable", *FAST_START, f"-XX:SharedClassListFile={mine}", f"-XX:SharedArchiveFile={draft}"]
    command = ["sh", "-c", '"$@" && mv "$0" "${0%draft}jsa"', str(draft), *write, "-cp", f"{library}/*"]
    _sharing.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    return []
