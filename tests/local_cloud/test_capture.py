"""Data capture: JSON lines in S3, as SageMaker writes them."""

import base64
import json
import re

import pytest

from tests.local_cloud.account import BUCKET, CREATED, endpoint_resources, until

pytestmark = pytest.mark.local_cloud


def deploy(cloud, name, percentage=100, modes=("Input", "Output"), **capture):
    resources = endpoint_resources(name, cloud.put_archive(f"{name}.tar.gz", "hi"))
    resources["Config"]["Properties"]["DataCaptureConfig"] = {
        "EnableCapture": True,
        "InitialSamplingPercentage": percentage,
        "DestinationS3Uri": f"s3://{BUCKET}/captured/",
        "CaptureOptions": [{"CaptureMode": mode} for mode in modes],
        **capture,
    }
    assert cloud.deploy(name, resources) == CREATED


def lines(cloud, name):
    """Everything captured from an endpoint so far, by key."""
    s3 = cloud.client("s3")
    found = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"captured/{name}/").get("Contents", [])
    texts = {
        item["Key"]: s3.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read().decode()
        for item in found
    }
    return {key: [json.loads(line) for line in text.splitlines()] for key, text in texts.items()}


def captured(cloud, name, count):
    def captured_lines():
        every = [line for item in lines(cloud, name).values() for line in item]
        return every if len(every) >= count else None

    return until(captured_lines)


def test_requests_and_answers_are_captured_by_hour_and_variant(cloud):
    deploy(cloud, "watched", CaptureContentTypeHeader={"JsonContentTypes": ["application/json"]})
    cloud.invoke("watched", b'{"a": 1}', ContentType="application/json", InferenceId="trace-7")
    cloud.invoke("watched", b"\xff\x00", ContentType="application/octet-stream")
    one, two = captured(cloud, "watched", 2)
    assert all(
        re.fullmatch(r"captured/watched/AllTraffic/\d{4}/\d\d/\d\d/\d\d/[\w-]+\.jsonl", key)
        for key in lines(cloud, "watched")
    )
    assert one["captureData"]["endpointInput"] == {
        "observedContentType": "application/json",
        "mode": "INPUT",
        "data": '{"a": 1}',
        "encoding": "JSON",
    }
    assert json.loads(one["captureData"]["endpointOutput"]["data"])["greeting"] == "hi"
    assert (one["eventMetadata"]["inferenceId"], one["eventVersion"]) == ("trace-7", "0")
    raw = two["captureData"]["endpointInput"]
    assert (raw["encoding"], base64.b64decode(raw["data"])) == ("BASE64", b"\xff\x00")
    shown = cloud.client("sagemaker").describe_endpoint(EndpointName="watched")["DataCaptureConfig"]
    assert (shown["CaptureStatus"], shown["CurrentSamplingPercentage"]) == ("Started", 100)
    cloud.destroy("watched")


def test_only_the_configured_share_and_side_is_captured(cloud):
    deploy(cloud, "sparse", percentage=30, modes=("Output",))
    for _ in range(200):
        cloud.invoke("sparse")
    every = captured(cloud, "sparse", 20)
    assert {tuple(line["captureData"]) for line in every} == {("endpointOutput",)}
    cloud.destroy("sparse")
    until(lambda: len(captured(cloud, "sparse", 20)) >= 30)
    assert len(captured(cloud, "sparse", 30)) <= 95
