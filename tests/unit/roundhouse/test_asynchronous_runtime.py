"""Asking an asynchronous endpoint: what is uploaded, awaited and read, by a client that waits."""

from __future__ import annotations

import io

import numpy as np
import pytest
from botocore.exceptions import ClientError

from container.client import EndpointClient, EndpointFault
from container.wire import array_request
from roundhouse.invocation import AsynchronousRuntime

ANSWER, FAILURE = "s3://b/answered/1.out", "s3://b/failed/1-error.out"


class Cloud:
    """S3 and SageMaker Runtime; an object of `later` appears after some pauses."""

    def __init__(self, later: dict[str, tuple[bytes, str]], pauses: int = 2) -> None:
        self.objects: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.later, self.pauses, self.now, self.queued = later, pauses, 0.0, []

    def put_object(self, *, Bucket, Key, Body, ContentType):
        self.objects[Bucket, Key] = (Body, ContentType)

    def get_object(self, *, Bucket, Key):
        if (Bucket, Key) not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        body, content_type = self.objects[Bucket, Key]
        return {"Body": io.BytesIO(body), "ContentType": content_type}

    def invoke_endpoint_async(self, **request):
        self.queued.append(request)
        return {"OutputLocation": ANSWER, "FailureLocation": FAILURE}

    def pause(self, seconds):
        self.now += seconds
        self.pauses -= 1
        if self.pauses == 0:
            for url, value in self.later.items():
                bucket, _, key = url.removeprefix("s3://").partition("/")
                self.objects[bucket, key] = value


def client(cloud: Cloud, seconds: float = 10) -> EndpointClient:
    runtime = AsynchronousRuntime(
        runtime=cloud,
        s3=cloud,
        bucket="b",
        prefix="requests/e",
        seconds=seconds,
        say=lambda _: None,
        pause=cloud.pause,
        clock=lambda: cloud.now,
    )
    return EndpointClient(runtime=runtime, endpoint="e", binary=True)


def test_answer_is_awaited_in_s3_and_the_body_uploaded_where_the_role_reads():
    rows = np.ones((3, 2), np.float32)
    body, kind = array_request({"out": rows})
    cloud = Cloud({ANSWER: (body.replace(b'"inputs"', b'"outputs"'), kind_of(body, kind))})
    found = client(cloud).ask({"signal": rows})
    assert np.array_equal(found["out"], rows)
    (request,) = cloud.queued
    bucket, key = request["InputLocation"].removeprefix("s3://").split("/", 1)
    assert key.startswith("requests/e/")
    assert cloud.objects[bucket, key] == array_request({"signal": rows})
    assert request["ContentType"] == array_request({"signal": rows})[1]


def kind_of(body: bytes, kind: str) -> str:
    """The content type once "inputs" became "outputs", a byte more."""
    base, _, size = kind.partition("json-header-size=")
    return f"{base}json-header-size={int(size) + 1}"


def test_refuses_with_the_servers_sentence_where_a_request_failed():
    sentence = b"Received client error (400) from primary: wrong shape"
    with pytest.raises(EndpointFault, match="wrong shape") as fault:
        client(Cloud({FAILURE: (sentence, "text/plain")})).ask({"x": np.ones((1, 1))})
    assert fault.value.__cause__.response["OriginalStatusCode"] == 400


def test_refuses_to_wait_longer_than_its_seconds():
    with pytest.raises(EndpointFault, match=r"no answer lay at .* within 5 s"):
        client(Cloud({}, pauses=-1), seconds=5).ask({"x": np.ones((1, 1))})


def test_refusal_of_s3_is_not_taken_for_an_answer_that_is_late():
    cloud = Cloud({})

    def denied(**_):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetObject")

    cloud.get_object = denied
    with pytest.raises(EndpointFault, match="AccessDenied"):
        client(cloud).ask({"x": np.ones((1, 1))})
