"""S3, and what speaks like it (MinIO, Ceph, ...), through boto3.

Credentials, region, profile and proxy come from where AWS' own tools take them: environment, files, instance or pod roles. An object
appears whole or not at all; its SHA-256 goes with it as metadata, so a run after one that was killed finds out what is there without
reading it.

boto3's time-out is for one read, so its connections are given sockets that count (`common/bounded_socket.py`): one allowance for
an operation with all its attempts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import boto3
from boto3.exceptions import S3UploadFailedError
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  -- boto's own
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from common.bounded_socket import Allowance, bounded
from common.log_files.targets import FAILED, MAX_MANIFEST_BYTES, MISSING, REFUSED, SLOWEST, UNREACHABLE, Stored, TargetError

OPERATION_S: Final = 180.0  # seconds; for all attempts of one, and more for a file (SLOWEST); a guess
MAX_ANSWER_BYTES: Final = 1 << 20  # bytes; heads and errors, which have some hundreds, of all attempts; a guess
PART: Final = 64 << 20  # bytes; of a file sent in parts
CONFIG: Final = Config(
    connect_timeout=10, read_timeout=60, retries={"mode": "standard", "max_attempts": 5}, user_agent_extra="sluice-log-ship"
)
TRANSFER: Final = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=2)
SHA256: Final = "sha256"  # name of the metadata
NOT_THERE: Final = {"404", "NoSuchKey", "NotFound"}
NOT_ALLOWED: Final = {
    "403", "AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401",
    "RequestTimeTooSkewed", "AuthorizationHeaderMalformed",
}  # fmt: skip
CREDENTIALS: Final = (
    "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or a role; it needs s3:PutObject, s3:GetObject and s3:ListBucket"
)


class S3:
    """A bucket, below a prefix."""

    def __init__(self, bucket: str, prefix: str, endpoint: str | None) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        try:
            self._client: Any = boto3.Session().client("s3", endpoint_url=endpoint, config=CONFIG)
        except (BotoCoreError, ValueError) as error:
            raise self._fault(error) from error
        self._allowance = Allowance(OPERATION_S, MAX_ANSWER_BYTES)
        # boto3 has no other way in; should it change these names, the walk of peers fails (tests/contracts/test_peers.py).
        pools = self._client._endpoint.http_session._pool_classes_by_scheme
        for scheme, pool in dict(pools).items():
            kind = bounded(pool.ConnectionCls, "connect", self._allowance)
            pools[scheme] = type(f"Bounded{pool.__name__}", (pool,), {"ConnectionCls": kind})

    def _begin(self, sent: int = 0, read: int = 0) -> None:
        """One operation: bytes of a file that go there, or come from there."""
        self._allowance.seconds = OPERATION_S + (sent + read) / SLOWEST
        self._allowance.most = MAX_ANSWER_BYTES + read
        self._allowance.begin()

    def stat(self, name: str, size: int) -> Stored | None:
        del size
        self._begin()
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=self._prefix + name)
        except ClientError as error:
            if _code(error) in NOT_THERE | {"403"}:  # without s3:ListBucket, 403 is all there is to learn; a write will tell
                return None
            raise self._fault(error) from error
        except BotoCoreError as error:
            raise self._fault(error) from error
        return Stored(int(found["ContentLength"]), str(found["Metadata"].get(SHA256, "")))

    def put(self, name: str, path: Path, sha256: str) -> None:
        key = self._prefix + name
        self._begin(sent=path.stat().st_size)
        try:
            self._client.upload_file(str(path), self._bucket, key, ExtraArgs={"Metadata": {SHA256: sha256}}, Config=TRANSFER)
        except S3UploadFailedError as error:  # hides the code of what it stands for
            raise self._fault(error.__context__ or error) from error
        except (ClientError, BotoCoreError) as error:
            raise self._fault(error) from error

    def put_bytes(self, name: str, data: bytes) -> None:
        self._begin(sent=len(data))
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data)
        except (ClientError, BotoCoreError) as error:
            raise self._fault(error) from error

    def get(self, name: str) -> bytes | None:
        self._begin(read=MAX_MANIFEST_BYTES + 1)
        try:
            body: bytes = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read(MAX_MANIFEST_BYTES + 1)
        except ClientError as error:
            if _code(error) in NOT_THERE:
                return None
            raise self._fault(error) from error
        except BotoCoreError as error:
            raise self._fault(error) from error
        if len(body) > MAX_MANIFEST_BYTES:
            raise TargetError(FAILED, f"{self.url}/{name} is larger than {MAX_MANIFEST_BYTES >> 20} MiB; look what has written it")
        return body

    def _fault(self, error: BaseException) -> TargetError:
        missing = (NoCredentialsError, PartialCredentialsError, ProfileNotFound, TokenRetrievalError, UnauthorizedSSOTokenError)
        if isinstance(error, missing):
            return TargetError(REFUSED, f"{self.url}: {error}; {CREDENTIALS}")
        if isinstance(error, ClientError):
            code = _code(error)
            said = error.response.get("Error", {}).get("Message", "")
            if code in NOT_ALLOWED:
                return TargetError(REFUSED, f"{self.url}: {code} {said}; {CREDENTIALS}")
            if code == "NoSuchBucket":
                return TargetError(MISSING, f"{self.url}: there is no bucket {self._bucket}; make it, or mend --to")
            return TargetError(FAILED, f"{self.url}: {code} {said}; the next run goes on where this one ended")
        if isinstance(error, NoRegionError):
            return TargetError(FAILED, f"{self.url}: no region; give AWS_REGION, or --endpoint for a server of your own")
        if isinstance(error, ConnectionError | HTTPClientError):
            return TargetError(UNREACHABLE, f"{self.url}: {error}; look at the network and the endpoint (--endpoint, AWS_ENDPOINT_URL)")
        return TargetError(FAILED, f"{self.url}: {error}")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
