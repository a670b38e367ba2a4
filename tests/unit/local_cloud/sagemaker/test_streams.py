"""A container's body as SageMaker's event stream: whole, broken off, paused, and our own fault."""

import http.client

import pytest
from botocore.eventstream import EventStreamBuffer

from local_cloud.sagemaker.runtime.streams import (
    BrokenStream,
    Progress,
    event_stream,
    plain_stream,
)

pytestmark = pytest.mark.unit
LINE = b'data: {"text": "Paris"}\n\n'


class Response:
    """A body of one line that ends with an error, if any."""

    def __init__(self, error=None):
        self.error = error

    def chunks(self):
        yield LINE
        if self.error is not None:
            raise self.error


def messages(response):
    progress, buffer = Progress(begun=0.0), EventStreamBuffer()
    for content in event_stream(progress, response):
        buffer.add_data(content)
    return progress, [event.to_response_dict() for event in buffer]


def test_a_whole_body_is_parts_alone():
    progress, parts = messages(Response())
    assert b"".join(part["body"] for part in parts) == LINE
    assert progress.broken is None
    assert progress.first is not None


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (TimeoutError(), "ModelStreamError", b"ModelInvocationTimeExceeded"),
        (http.client.IncompleteRead(b""), "ModelStreamError", b"StreamBroken"),
        (ConnectionResetError(), "ModelStreamError", b"StreamBroken"),
        (KeyError("x"), "InternalStreamFailure", b"The local cloud failed"),
    ],
)
def test_what_breaks_a_body_ends_its_stream_as_an_exception(error, kind, code):
    progress, (*parts, last) = messages(Response(error))
    assert b"".join(part["body"] for part in parts) == LINE
    assert last["headers"][":exception-type"] == kind
    assert code in last["body"]
    assert progress.broken is error


def test_a_plain_body_breaks_off_for_its_reader_too():
    assert b"".join(plain_stream(Progress(begun=0.0), Response())) == LINE
    with pytest.raises(BrokenStream):
        b"".join(plain_stream(Progress(begun=0.0), Response(ConnectionResetError())))
