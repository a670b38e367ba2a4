"""Asks an asynchronous endpoint as if it were synchronous: upload, queue, wait, read the answer."""

from __future__ import annotations

import io
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from roundhouse.aws.clients import ABSENT, CHUNK_BYTES, Client

POLL_SECONDS = 1.0
STATUS = re.compile(r"\((\d{3})\)")
"""Of the container, in the sentence that SageMaker leaves where a request failed."""


class AsynchronousFailure(Exception):
    """What lies in S3 in place of an answer; `response` is as botocore's ClientError has it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        status = STATUS.search(sentence)
        self.response: Mapping[str, Any] = {
            "OriginalMessage": sentence,
            "OriginalStatusCode": None if status is None else int(status[1]),
        }


@dataclass(kw_only=True)
class AsynchronousRuntime:
    """Stands for a sagemaker-runtime client in `EndpointClient`.

    Bodies are uploaded below `prefix` of `bucket`, where the endpoint's role may read them, and
    stay there until the bucket's lifecycle removes them, as answers do.
    """

    runtime: Client
    s3: Client
    bucket: str
    prefix: str
    seconds: float
    """How long an answer is awaited."""
    say: Callable[[str], object] = print
    pause: Callable[[float], None] = field(default=time.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)

    def invoke_endpoint(self, **request: Any) -> Mapping[str, Any]:
        """Return the answer of EndpointName to Body and ContentType, as InvokeEndpoint does.

        Raises AsynchronousFailure with the sentence in S3, TimeoutError, botocore's faults.
        """
        found = self._answer(request["EndpointName"], request["Body"], request["ContentType"])
        return {"Body": io.BytesIO(found["Body"].read()), "ContentType": found["ContentType"]}

    def invoke_file(self, endpoint: str, path: Path, content_type: str, output: Path) -> int:
        """Write the answer of a file's bytes to another file, and return its bytes.

        Neither is held in memory. Raises as `invoke_endpoint` does, and OSError.
        """
        with path.open("rb") as body:
            answer = self._answer(endpoint, body, content_type)["Body"]
        with output.open("wb") as written:
            while chunk := answer.read(CHUNK_BYTES):
                written.write(chunk)
            return written.tell()

    def _answer(self, endpoint: str, body: Any, content_type: str) -> Mapping[str, Any]:
        """Upload a body, queue it, and return the object of its answer once it lies in S3."""
        key = f"{self.prefix}/{uuid.uuid4()}"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, ContentType=content_type)
        queued = self.runtime.invoke_endpoint_async(
            EndpointName=endpoint,
            ContentType=content_type,
            InputLocation=f"s3://{self.bucket}/{key}",
        )
        answer, failure = queued["OutputLocation"], queued.get("FailureLocation")
        self.say(f"Queued; the answer will be {answer}.")
        deadline = self.clock() + self.seconds
        while True:
            if (found := self._read(answer)) is not None:
                return found
            if failure and (found := self._read(failure)) is not None:
                raise AsynchronousFailure(found["Body"].read().decode(errors="replace").strip())
            if self.clock() >= deadline:
                raise TimeoutError(
                    f"no answer lay at {answer} within {self.seconds:g} s; it may still come"
                )
            self.pause(POLL_SECONDS)

    def _read(self, location: str) -> Mapping[str, Any] | None:
        """Return an object with its body to read; None where there is none yet."""
        url = urlsplit(location)
        try:
            found: Mapping[str, Any] = self.s3.get_object(
                Bucket=url.netloc, Key=url.path.lstrip("/")
            )
        except Exception as fault:
            response = getattr(fault, "response", None)
            if isinstance(response, Mapping) and response.get("Error", {}).get("Code") in ABSENT:
                return None
            raise
        return found
