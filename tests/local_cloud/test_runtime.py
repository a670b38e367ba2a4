"""InvokeEndpoint: what it passes on, and what it refuses as SageMaker Runtime does."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from botocore.exceptions import ClientError

from tests.fixtures.hostile.requests import TEXTS, deep_requests, hostile_requests, lying_requests
from tests.local_cloud.account import refusal

pytestmark = pytest.mark.local_cloud
LIMIT = 6_291_456
BYTES = b"\r\n\r\n" + bytes(range(256))


@pytest.fixture(scope="module")
def endpoint(cloud):
    cloud.serve("asked")
    yield cloud
    cloud.destroy("asked")


def test_many_callers_are_answered_at_once(endpoint):
    with ThreadPoolExecutor(16) as callers:
        answers = list(
            callers.map(
                lambda number: endpoint.invoke("asked", str(number).encode())["body"], range(64)
            )
        )
    assert answers == [str(number) for number in range(64)]


def test_body_of_the_full_size_is_passed_on(endpoint):
    assert endpoint.invoke("asked", b"x" * LIMIT)["bytes"] == LIMIT


def test_hostile_bodies_are_passed_on_byte_for_byte_and_no_answer_goes_to_another(endpoint):
    hostile = chain(
        hostile_requests(4, 80, TEXTS), lying_requests(4, 20), deep_requests(3), [("POST", BYTES)]
    )
    bodies = [request.partition(b"\r\n\r\n")[2] for _, request in hostile]
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda body: endpoint.invoke("asked", body), bodies))
    digests = [hashlib.sha256(body).hexdigest() for body in bodies]
    assert [answer["sha256"] for answer in answers] == digests


def test_answer_keeps_the_content_type_and_attributes_that_the_server_gave_it(endpoint):
    answer = endpoint.client("sagemaker-runtime").invoke_endpoint(
        EndpointName="asked", Body=b"x", ContentType="text/plain", CustomAttributes="trace=7"
    )
    actual = (answer["ContentType"], answer["InvokedProductionVariant"])
    assert actual == ("application/json", "AllTraffic")
    echo = json.loads(answer["Body"].read())
    assert (echo["content_type"], echo["attributes"]) == ("text/plain", "trace=7")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"CustomAttributes": "a" * 1025},
            "'customAttributes' failed to satisfy constraint: .* less than or equal to 1024",
        ),
        (
            {"InferenceId": "i" * 65},
            "'inferenceId' failed to satisfy constraint: .* less than or equal to 64",
        ),
        (
            {"TargetVariant": "all_traffic"},
            "'targetVariant' failed to satisfy constraint: Member must satisfy regular",
        ),
        ({"TargetVariant": "Blue"}, "Could not find variant Blue in endpoint asked"),
        (
            {"InferenceComponentName": "part"},
            "InferenceComponentName part needs an endpoint whose models are inference comp",
        ),
        (
            {"TargetContainerHostname": "second"},
            "TargetContainerHostname second needs a model of several containers",
        ),
    ],
)
def test_refuses_an_invocation(endpoint, options, message):
    with pytest.raises(ClientError, match=message) as error:
        endpoint.invoke("asked", **options)
    response = error.value.response
    actual = (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"])
    assert actual == ("ValidationError", 400)


def test_refuses_a_body_above_the_limit(endpoint):
    with refusal(f"Request body of {LIMIT + 1} bytes exceeds", "ValidationError"):
        endpoint.invoke("asked", b"x" * (LIMIT + 1))


def test_refuses_an_endpoint_that_is_not_there(cloud):
    with pytest.raises(
        ClientError, match="Endpoint nowhere of account 000000000000 not found"
    ) as error:
        cloud.invoke("nowhere")
    assert error.value.response["Error"]["Code"] == "ValidationError"
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_refuses_a_target_model_on_a_single_model_endpoint(endpoint):
    with pytest.raises(ClientError, match="TargetModel is only for multi-model endpoints"):
        endpoint.invoke("asked", TargetModel="a/model.tar.gz")


def test_servers_own_refusal_comes_back_as_model_error(endpoint):
    with pytest.raises(
        ClientError,
        match='Received client error \\(400\\) from primary with message "that is no question"',
    ) as error:
        endpoint.invoke("asked", b"fault")
    response = error.value.response
    actual = (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"])
    assert actual == ("ModelError", 424)
    actual = (response["OriginalStatusCode"], response["OriginalMessage"])
    assert actual == (400, "that is no question")
