"""Shipping to S3, against moto's server: the same promises as of every target, and S3's own faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from common.log_files import s3
from common.log_files.s3 import S3
from common.log_files.target_urls import target_of
from common.log_files.targets import MISSING, REFUSED, UNREACHABLE, Target, TargetError
from support import targets
from support.log_files import log_file
from support.processes import free_ports
from support.stores import s3_server
from support.targets import CONTRACT, run

pytestmark = [
    pytest.mark.storage, pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore::ResourceWarning"),
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3") / "server") as address:
        yield address


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, str]], None]:
    """Sets what AWS' tools find, and nothing else."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    def given(found: dict[str, str]) -> None:
        for name, value in found.items():
            monkeypatch.setenv(name, value)

    return given


@pytest.fixture
def bucket(server: str, aws: Any, request: pytest.FixtureRequest) -> str:
    aws({"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": server})
    name = f"bucket-{abs(hash(request.node.name)) % 10**9}"
    boto3.client("s3", endpoint_url=server).create_bucket(Bucket=name)
    return name


@pytest.mark.parametrize("prefix", ["", "/logs/sluice"])
@pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__)
def test_a_target(tmp_path: Path, bucket: str, server: str, promise: Callable[[Path, Target], None], prefix: str) -> None:
    promise(tmp_path, target_of(f"s3a://{bucket}{prefix}/", {"AWS_ENDPOINT_URL": server}))


def test_a_killed_run_is_gone_on_with(tmp_path: Path, bucket: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    targets.a_killed_run_is_gone_on_with(tmp_path, lambda number: S3(bucket, str(number), server), monkeypatch)


def test_a_large_file_goes_in_parts(tmp_path: Path, bucket: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part = 5 << 20  # the least that S3 takes
    monkeypatch.setattr(s3, "TRANSFER", TransferConfig(multipart_threshold=part, multipart_chunksize=part))
    source = tmp_path / "source"
    source.write_bytes(b"0123456789" * (part // 4))
    target = S3(bucket, "", server)
    target.put("large", source, "hash")
    assert target.stat("large", 0) == (source.stat().st_size, "hash")
    assert target.get("large") == source.read_bytes()


def test_s3_and_s3a_are_one_target(bucket: str) -> None:
    assert target_of(f"s3a://{bucket}/x/", {}).url == target_of(f"s3://{bucket}/x", {}).url


def fault(tmp_path: Path, url: str, endpoint: str) -> TargetError:
    log_file(tmp_path / "log")
    with pytest.raises(TargetError) as told:
        run(tmp_path / "log", target_of(url, {}, endpoint))
    return told.value


def test_missing_credentials_are_told_with_the_way_out(tmp_path: Path, server: str, aws: Any) -> None:
    aws({})
    told = fault(tmp_path, "s3://bucket/x", server)
    assert told.kind == REFUSED
    assert "Unable to locate credentials; give AWS_ACCESS_KEY_ID" in str(told)


def test_a_profile_that_is_not_there_is_told(tmp_path: Path, server: str, aws: Any) -> None:
    aws({"AWS_PROFILE": "nobody"})
    told = fault(tmp_path, "s3://bucket/x", server)
    assert told.kind == REFUSED
    assert "nobody" in str(told)


def test_a_missing_bucket_is_told(tmp_path: Path, bucket: str, server: str) -> None:
    told = fault(tmp_path, f"s3://{bucket}-not/x", server)
    assert told.kind == MISSING
    assert "there is no bucket" in str(told)


def test_a_server_that_is_away_is_told(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "CONFIG", s3.CONFIG.merge(Config(retries={"max_attempts": 1})))
    told = fault(tmp_path, f"s3://{bucket}/x", f"http://127.0.0.1:{free_ports(1)[0]}")
    assert told.kind == UNREACHABLE
    assert "--endpoint" in str(told)
