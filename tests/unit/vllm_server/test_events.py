"""Whole events, and an honest end, however the engine's bytes are split."""

from __future__ import annotations

from container.server.vllm.events import EventRelay

TEXT = 'data: {"choices":[{"text":"é \\"error\\" 猫"}]}\n\n'.encode()
ERROR = b'data: {"error":{"message":"engine died"}}\n\n'
DONE = b"data: [DONE]\n\n"


def relayed(*chunks):
    relay = EventRelay()
    return b"".join(relay.feed(chunk) for chunk in chunks), relay


def test_a_stream_is_passed_on_whole_wherever_it_is_split():
    stream = TEXT + TEXT + DONE
    for cut in range(len(stream) + 1):
        passed, relay = relayed(stream[:cut], stream[cut:])
        assert (passed, relay.done, relay.failed, relay.end("x")) == (stream, True, False, b"")


def test_done_after_an_error_is_withheld():
    stream = TEXT + ERROR + DONE
    for cut in range(len(stream) + 1):
        passed, relay = relayed(stream[:cut], stream[cut:])
        assert (passed, relay.done, relay.failed) == (TEXT + ERROR, False, True)
        assert relay.end("x") == b""


def test_what_ends_early_gets_an_error_event_after_whole_events_alone():
    for cut in range(len(TEXT + DONE)):
        passed, relay = relayed((TEXT + DONE)[:cut])
        assert passed in (b"", TEXT) and not relay.done
        last = relay.end("it ended").decode()
        assert last.startswith('data: {"error": {"message": "it ended"') and last.endswith("}\n\n")
        assert relay.end("again") == b""


def test_an_error_that_is_null_is_none():
    event = b'data: {"error":null,"choices":[]}\n\n'
    passed, relay = relayed(event, DONE)
    assert passed == event + DONE and relay.done
