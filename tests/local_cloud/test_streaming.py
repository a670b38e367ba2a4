"""Streamed answers: AWS's event stream, the OpenAI path with bearer tokens, what breaks them."""

import contextlib
import json
import time

import pytest

from tests.local_cloud.hosted_component import Hosted, bearer_token, openai_request

pytestmark = pytest.mark.local_cloud


@pytest.fixture(scope="module")
def hosted(cloud):
    made = Hosted(cloud, "streamed").deploy()
    yield made
    cloud.destroy(made.name)


def test_parts_split_lines_and_characters_and_together_are_whole(hosted):
    answer = hosted.open_stream(events=3)
    assert answer["ContentType"] == "text/event-stream"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    with contextlib.closing(answer["Body"]) as body:
        parts = [event["PayloadPart"]["Bytes"] for event in body]
    text = b"".join(parts).decode()
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert [json.loads(line)["number"] for line in lines[:-1]] == [0, 1, 2]
    assert lines[-1] == "[DONE]"
    with pytest.raises(UnicodeDecodeError):
        parts[0].decode()
    assert any(not part.endswith(b"\n") for part in parts)


def test_a_client_that_leaves_frees_its_copy(hosted):
    stream = hosted.open_stream(events=200, seconds=0.05)["Body"]
    next(iter(stream))
    stream.close()
    begin = time.monotonic()
    assert hosted.invoke()["greeting"] == "hi"
    assert time.monotonic() - begin < 5


def test_the_openai_path_gives_the_containers_own_answers(cloud, hosted):
    token, path = bearer_token(), "/endpoints/streamed/inference-components/streamed/openai/v1"
    status, kind, body = openai_request(
        cloud, f"{path}/chat/completions", {"stream": True, "events": 2}, token
    )
    assert (status, kind) == (200, "text/event-stream")
    assert body.decode().endswith("data: [DONE]\n\n")
    status, kind, body = openai_request(cloud, f"{path}/chat/completions", {}, token)
    assert (status, kind, json.loads(body)["greeting"]) == (200, "application/json", "hi")
    status, _, body = openai_request(cloud, f"{path}/chat/completions", {"refuse": True}, token)
    assert (status, json.loads(body)) == (400, {"error": {"message": "no such thing"}})


@pytest.mark.parametrize(
    ("path", "token", "status", "message"),
    [
        ("/inference-components/streamed/openai/v1/models", None, 404, "answers POST /v1/chat"),
        ("/openai/v1/chat/completions", None, 400, "Inference Component Name header is required"),
        ("/inference-components/none/openai/v1/chat/completions", None, 400, "not found"),
        ("/openai/v1/chat/completions", "", 403, "must be Bearer sagemaker-api-key-"),
        ("/openai/v1/chat/completions", "sagemaker-api-key-%%", 403, "not valid base64"),
        ("/openai/v1/chat/completions", {"action": "ListModels"}, 403, "no presigned call"),
        ("/openai/v1/chat/completions", {"seconds": 43201}, 403, "the most is 43200 s"),
        ("/openai/v1/chat/completions", {"region": "eu-west-1"}, 400, "Endpoint streamed of"),
    ],
)
def test_refuses_on_the_openai_path(cloud, hosted, path, token, status, message):
    made = bearer_token(**(token or {})) if token is None or isinstance(token, dict) else token
    found, _, body = openai_request(cloud, f"/endpoints/streamed{path}", {}, made)
    assert found == status
    assert message in json.loads(body)["error"]["message"]
