"""What signers of builds share: S3, KMS, and the statement that is signed.

A signer is a Lambda function whose whole code is this file and one more (signer.py,
checkpoint_signer.py), deployed as text in the builds stack. What a build left under `candidates/`
is data to it, and no line of the build's source runs here. So it imports the standard library and
botocore only, both of which Lambda's Python brings; the forms of statement and envelope are those
of `onboarding.signature`.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

KEY = re.compile(r"[0-9a-f]{20}")
CANDIDATE = re.compile(r"[0-9a-z-]{1,64}")
COMMIT = re.compile(r"[0-9a-f]{40}")
SOURCE = re.compile(r"[^/]+/sources/([0-9a-f]{64})\.zip")
PAYLOAD_TYPE = "application/vnd.in-toto+json"
CONFLICT_SECONDS = (1, 2, 4, 8)
"""Between tries of a write that met another of the same object."""
ABSENT, PRESENT = ("NoSuchKey", "404"), "PreconditionFailed"
CONFLICT = "ConditionalRequestConflict"
COPIES_AT_ONCE = 64
ANSWER_SECONDS = 840
"""Until S3 has answered: it copies an object for as long as its client listens."""


class Refused(Exception):
    """What was built is not published; the message is one sentence."""


class Unfinished(Exception):
    """The function's time is up, and what it has published stays; the next call goes on."""


@dataclass(frozen=True, kw_only=True)
class Publisher(ABC):
    """A bucket, a key to sign with, and the ARN of the state machine whose builds it signs."""

    bucket: str
    signing_key: str
    builder: str
    s3: Any
    kms: Any
    sleep: Callable[[float], None] = time.sleep
    seconds_left: Callable[[], float] = lambda: math.inf
    """Until the function is ended."""

    @abstractmethod
    def publish(self, event: Mapping[str, str], folder: Path) -> None:
        """Publish what a build left, signed; `folder` is empty. Raises Refused and Unfinished."""

    def envelope(self, payload: bytes) -> dict[str, Any]:
        """Return the envelope of a payload, as JSON."""
        message = b"DSSEv1 %d %s %d " % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload))
        signature = self.kms.sign(
            KeyId=self.signing_key,
            Message=hashlib.sha256(message + payload).digest(),
            MessageType="DIGEST",
            SigningAlgorithm="ECDSA_SHA_256",
        )["Signature"]
        public_key = self.kms.get_public_key(KeyId=self.signing_key)["PublicKey"]
        own = {"keyid": hashlib.sha256(public_key).hexdigest(), "sig": base64_text(signature)}
        document = {"payload": base64_text(payload), "payloadType": PAYLOAD_TYPE}
        return {**document, "signatures": [own]}

    def download(self, name: str, path: Path) -> bool:
        """Copy an object to a file; False where there is none."""
        try:
            body = self.s3.get_object(Bucket=self.bucket, Key=name)["Body"]
        except ClientError as error:
            if error.response["Error"]["Code"] in ABSENT:
                return False
            raise
        with path.open("wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)
        return True

    def upload(self, name: str, path: Path) -> bool:
        """Write an object that is not there yet; False when it is, which is kept."""
        with path.open("rb") as file:
            checksum = base64_text(hashlib.file_digest(file, "sha256").digest())

        def put() -> None:
            with path.open("rb") as file:
                fields = {"Bucket": self.bucket, "Key": name, "ChecksumSHA256": checksum}
                self.s3.put_object(Body=file, IfNoneMatch="*", **fields)

        return self.write_once(put)

    def write_once(self, write: Callable[[], object]) -> bool:
        """Make a write that S3 refuses where an object is; False when one is there."""
        for seconds in (*CONFLICT_SECONDS, None):
            try:
                write()
                return True
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == PRESENT:
                    return False
                if code != CONFLICT or seconds is None:
                    raise
                self.sleep(seconds)
        return False

    def url(self, name: str) -> str:
        """Return an object's address."""
        return f"s3://{self.bucket}/{name}"


def answer(kind: type[Publisher], event: Mapping[str, str], context: Any) -> dict[str, str]:
    """Return `{"status": "signed"}`, or `{"status": "refused", "reason": …}`.

    Or `{"status": "unfinished"}`: the same call goes on from there. `event` holds engineKey, model,
    candidate, source (bucket/key), commit and execution; `context` is Lambda's.
    """
    session = botocore.session.get_session()
    config = Config(read_timeout=ANSWER_SECONDS, max_pool_connections=COPIES_AT_ONCE)
    publisher = kind(
        bucket=os.environ["BUCKET"],
        signing_key=os.environ["SIGNING_KEY"],
        builder=os.environ["BUILDER"],
        s3=session.create_client("s3", config=config),
        kms=session.create_client("kms"),
        seconds_left=lambda: context.get_remaining_time_in_millis() / 1000,
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            publisher.publish(event, Path(folder))
    except Refused as refusal:
        return {"status": "refused", "reason": str(refusal)}
    except Unfinished:
        return {"status": "unfinished"}
    return {"status": "signed"}


def candidate_of(event: Mapping[str, str]) -> tuple[str, str]:
    """Return the key that was built, and the prefix of what the build left. Raises Refused."""
    key, candidate = event["engineKey"], event["candidate"]
    if not KEY.fullmatch(key) or not CANDIDATE.fullmatch(candidate):
        raise Refused(f"{key!r} and {candidate!r} are no engine key and candidate of a build")
    return key, f"candidates/{key}/{candidate}"


def statement(
    subject: tuple[str, bytes],
    event: Mapping[str, str],
    builder: str,
    parameters: Mapping[str, str],
    *,
    built: str = "engine",
) -> bytes:
    """Return the payload: the in-toto statement that the state machine built this manifest.

    `subject` is the manifest's name and bytes. What the build ran from is what the machine was
    started with, not what the build says.
    """
    source, commit = SOURCE.fullmatch(event["source"]), event["commit"]
    dependencies: list[dict[str, Any]] = [{"uri": f"s3://{event['source']}"}]
    if source is not None:
        dependencies[0]["digest"] = {"sha256": source[1]}
    if COMMIT.fullmatch(commit):
        dependencies.append({"name": "commit", "digest": {"gitCommit": commit}})
    name, digest = subject[0], hashlib.sha256(subject[1]).hexdigest()
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return canonical_json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "predicateType": "https://slsa.dev/provenance/v1",
            "subject": [{"name": name, "digest": {"sha256": digest}}],
            "predicate": {
                "buildDefinition": {
                    "buildType": f"https://roundhouse.dev/{built}/v1",
                    "externalParameters": dict(parameters),
                    "resolvedDependencies": dependencies,
                },
                "runDetails": {
                    "builder": {"id": builder},
                    "metadata": {"invocationId": event["execution"], "finishedOn": now},
                },
            },
        }
    )


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Return one line of JSON, keys sorted: equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def base64_text(data: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(data).decode()
