"""Streamed answers: AWS's event stream, and a client that leaves."""

import contextlib
import json
import time

import pytest

from tests.local_cloud.hosted_component import Hosted

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
