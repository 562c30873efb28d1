"""RocketMQ's own RemotingCommand, of several versions: what it writes, and what it reads of whatever it is given.

The programs are in tests/gateway/protocols/rocketmq/vectors/remoting. One start of a JVM takes a second and reads some 10,000 frames more.
`PYTHONPATH=tests python -m support.rocketmq.remoting` writes the committed vectors anew.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.protocols.rocketmq.headers import CONSUMES, MAX_NAME_BYTES, ONE_WAY, RESPONSE, SEND_BACK, Header
from support.java import ROOT, compiled, java
from support.processes import HANG_S
from support.rocketmq.frames import frame

VECTORS = ROOT / "tests" / "gateway" / "protocols" / "rocketmq" / "vectors"
JARS = {"4.9.8": "rocketmq-client-4.9.8", "5.3.3": "rocketmq-5.3.3", "5.5.0": "rocketmq"}  # fastjson 1.2.69, 1.2.83; fastjson2


def write_frames(version: str, scratch: Path) -> str:
    """JSON lines: frames, and what they mean (`WriteFrames.java`). Raises MavenUnreachableError."""
    written = scratch / "frames.jsonl"
    _run(version, scratch, "WriteFrames", str(written))
    return written.read_text()


def read_frames(version: str, frames: Sequence[bytes], scratch: Path) -> list[dict[str, Any] | None]:
    """What the broker reads of each frame (`ReadFrames.java`); None where it would close the connection. Raises MavenUnreachableError."""
    given, read = scratch / "frames.hex", scratch / "read.jsonl"
    given.write_text("".join(f"{frame[4:].hex()}\n" for frame in frames))
    _run(version, scratch, "ReadFrames", str(given), str(read))
    found = [json.loads(line) for line in read.read_text().splitlines()]
    assert len(found) == len(frames)
    return found


def _run(version: str, scratch: Path, main: str, *words: str) -> None:
    command = [*java(compiled(VECTORS / "remoting", JARS[version]), main, scratch), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S, cwd=scratch)
    if done.returncode:
        raise RuntimeError(f"{main} on {version}: {(done.stderr or done.stdout)[-2000:]}")


def disagreement(header: Header, read: dict[str, Any] | None) -> str:
    """How our reading of a request differs from the broker's, where that would charge one thing and do another; "" where it does not.

    What the broker cannot read, takes for an answer or refuses does no harm.
    """
    if read is None or read["flag"] & RESPONSE:
        return ""
    ext = read["ext"] or {}
    if read["code"] in CONSUMES:
        theirs = tuple((ext.get(name) or "").encode(errors="replace").decode()[:MAX_NAME_BYTES] for name in ("topic", "consumerGroup"))
        ours = (header.source.decode(errors="replace"), header.group.decode(errors="replace"))
        return "" if ours == theirs else f"we read {ours}, the broker {theirs}"
    send = read.get("send")
    if send is None:
        return ""
    topic, group = send["topic"] or "", send["group"] or ""
    if read["code"] == SEND_BACK:
        topic = f"%RETRY%{group}" if group else ""
    if topic.startswith("%RETRY%"):
        group = topic.removeprefix("%RETRY%")  # whatever producer group it says (`headers.Header`)
    if not topic and not header.topic:
        return ""
    topic, group = (name.encode(errors="replace").decode()[:MAX_NAME_BYTES] for name in (topic, group))  # half surrogate pairs, as stored
    they = (topic, group, send["batch"], read["flag"] & ONE_WAY)
    we = (header.topic.decode(errors="replace"), header.group.decode(errors="replace"), header.batch, header.flag & ONE_WAY)
    return "" if we == they else f"we read {we}, the broker {they}"


# ---- the committed vectors ---------------------------------------------------------------------------------------------


def frames_file(version: str) -> Path:
    return VECTORS / f"frames-{version}.jsonl.gz"


def headers_file() -> Path:
    """Headers spelled in every way we could think of, and what the broker of each version reads of them."""
    return VECTORS / "headers.json"


def read_headers(version: str, headers: Sequence[bytes], scratch: Path) -> list[dict[str, Any] | None]:
    """What the broker reads of JSON headers. Without `opaque`: where it is not said the broker takes the next number."""
    read = read_frames(version, [frame(header) for header in headers], scratch)
    return [None if found is None else {name: found[name] for name in ("code", "flag", "ext", "send") if name in found} for found in read]


def main() -> None:
    rows = json.loads(headers_file().read_text())
    headers = [bytes.fromhex(row["header"]) for row in rows]
    for row in rows:
        row["broker"] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for version in JARS:
            frames_file(version).write_bytes(gzip.compress(write_frames(version, Path(scratch)).encode(), mtime=0))
            for row, read in zip(rows, read_headers(version, headers, Path(scratch)), strict=True):
                row["broker"][version] = read
    headers_file().write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
