"""Messages of the event stream, as botocore's own parser reads them."""

import json

import pytest
from botocore.eventstream import EventStreamBuffer

from local_cloud.protocol.event_stream import payload_part, stream_exception, uneven_parts

pytestmark = pytest.mark.unit
TEXT = 'data: {"content": "Île-de-France, 東京"}\n\n'.encode()


def read(content):
    buffer = EventStreamBuffer()
    buffer.add_data(content)
    return [event.to_response_dict() for event in buffer]


def test_botocore_reads_parts_and_the_exception_that_ends_them():
    parts = [payload_part(part) for part in uneven_parts(TEXT)]
    failure = stream_exception("ModelStreamError", Message="it broke", ErrorCode="StreamBroken")
    *events, exception = read(b"".join([*parts, failure]))
    assert [event["headers"][":event-type"] for event in events] == ["PayloadPart"] * 2
    assert b"".join(event["body"] for event in events) == TEXT
    assert exception["headers"][":exception-type"] == "ModelStreamError"
    assert exception["status_code"] == 400
    assert json.loads(exception["body"]) == {"Message": "it broke", "ErrorCode": "StreamBroken"}


def test_parts_split_characters_and_lines():
    first, second = uneven_parts(TEXT)
    assert first + second == TEXT
    with pytest.raises(UnicodeDecodeError):
        first.decode()
    first, second = uneven_parts(b'data: {"content": "Paris"}\n\n')
    assert not first.endswith(b"\n")
    assert list(uneven_parts(b"x")) == [b"x"]
    assert list(uneven_parts(b"")) == []


def test_a_changed_byte_breaks_the_checksum():
    content = bytearray(payload_part(TEXT))
    content[-10] ^= 1
    with pytest.raises(Exception, match="Checksum"):
        read(bytes(content))
