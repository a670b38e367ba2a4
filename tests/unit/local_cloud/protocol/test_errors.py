"""The JSON protocol of AWS's control planes: one action a request, and what cannot be read."""

import json

import pytest

from local_cloud.protocol.errors import dispatch

pytestmark = pytest.mark.unit
ACTIONS = {"Echo": lambda request: request}


def call(target, body):
    status, headers, content = dispatch("test", ACTIONS, target, body)
    return status, json.loads(content), headers


def test_an_action_answers_and_nothing_sent_is_an_empty_request():
    assert call("Test.Echo", b'{"a": 1}')[:2] == (200, {"a": 1})
    assert call("Test.Echo", b"")[:2] == (200, {})


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"{'a': 1}"])
def test_refuses_a_body_that_is_no_json(body):
    status, content, headers = call("Test.Echo", body)
    actual = (status, content["__type"], headers["x-amzn-ErrorType"])
    assert actual == (400, "SerializationException", "SerializationException")
    assert content["message"].startswith("The request's body is no JSON: ")


def test_refuses_an_action_that_is_not_there():
    status, content, _ = call("Test.Shout", b"{}")
    assert (status, content["__type"]) == (400, "UnknownOperationException")
