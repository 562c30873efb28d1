"""Files that are read at run time end: what is no regular file, or too large, is refused at once, and the error names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from admin.alerting.hook import CannotPostError, authorization, url_of
from common.regular_files import MAX_SECRET_BYTES, read_secret
from common.tls.certificates import MAX_FILE_BYTES, TlsFileError, read_text
from config.known_settings import FleetRedis, RedisTls
from config.tracing_packages import read_headers
from gateway.fleet.outages import OwnerGoneError
from gateway.fleet.redis_link import options_of, password_of

Errors = (OSError, OwnerGoneError, TlsFileError, CannotPostError)


def redis(**settings: object) -> FleetRedis:
    return FleetRedis("rediss://127.0.0.1:1/0", "files", 1, **settings)  # type: ignore[arg-type]


READERS: dict[str, Callable[[Path], object]] = {
    "a password": read_secret,
    "Redis' password": lambda file: password_of(redis(password_file=file)),
    "Redis' CA": lambda file: options_of(redis(tls=RedisTls(ca=file)), None),
    "a collector's headers": read_headers,
    "a certificate": lambda file: read_text(file, "certificate"),
    "a webhook's token": lambda file: authorization(file, None),
    "a webhook's URL": url_of,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["a FIFO", "a device without end", "a folder", "a large file", "no file"])
def test_no_file_is_read_without_an_end(reader: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if kind == "a FIFO":
        os.mkfifo(file)
    elif kind == "a device without end":
        file = Path("/dev/zero")
    elif kind == "a folder":
        file.mkdir()
    elif kind == "a large file":
        with file.open("wb") as sparse:
            sparse.truncate(8 << 30)
    with pytest.raises(Errors) as caught:
        READERS[reader](file)
    text = str(caught.value) + repr(vars(caught.value))
    assert str(file) in text or isinstance(caught.value, OSError)


def test_what_is_just_small_enough_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x" * MAX_SECRET_BYTES)
    assert len(read_secret(file)) == MAX_SECRET_BYTES
    file.write_text("x" * MAX_FILE_BYTES)
    assert len(read_text(file, "certificate")) == MAX_FILE_BYTES
