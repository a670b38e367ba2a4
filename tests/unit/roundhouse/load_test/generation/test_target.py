"""Where requests for text go, and in which schema."""

from __future__ import annotations

import json

import pytest

from onboarding.environment_spec import EnvironmentSpec
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.yaml_text import load_yaml
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.generation.target import endpoint_target, server_target
from tests.unit.onboarding.text_generation.shapes import FIXTURES

ENVIRONMENT = EnvironmentSpec(
    name="dev", account="111122223333", region="us-east-1", platform="triton-26.05"
)
BASE = load_yaml((FIXTURES / "text_generation" / "base.yaml").read_text())
RUNTIME = "https://runtime.sagemaker.us-east-1.amazonaws.com"


def spec(kind) -> TextGenerationSpec:
    document = BASE | {"endpoint": {**BASE["endpoint"], "kind": kind}}
    return TextGenerationSpec.model_validate_json(json.dumps(document))


@pytest.mark.parametrize(
    ("url", "path", "schema"),
    [
        ("http://h:8000", "/v1/chat/completions", "chat"),
        ("http://h:8000/v1/completions", "/v1/completions", "completion"),
        ("http://h:8080/invocations", "/invocations", "chat"),
    ],
)
def test_path_of_a_server_says_its_schema(url, path, schema):
    target = server_target(url, "m")
    assert (target.destination.url.partition(":80")[2][2:], target.schema) == (path, schema)
    assert target.sign() is None and not target.is_framed


def test_refuses_what_is_no_address():
    with pytest.raises(RoundhouseError, match="is no server's address"):
        server_target("h:8000", None)


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("inference-component", {"X-Amzn-SageMaker-Inference-Component": "dev-chat"}),
        ("model", {}),
    ],
)
def test_stream_of_invocations_is_signed_and_names_its_component(kind, headers):
    target = endpoint_target(ENVIRONMENT, spec(kind), RUNTIME)
    assert target.destination.url == f"{RUNTIME}/endpoints/dev-chat/invocations-response-stream"
    assert target.destination.headers == headers
    assert (target.destination.region, target.is_framed, target.model) == (
        "us-east-1",
        True,
        "chat",
    )
