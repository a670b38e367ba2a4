"""When the tokens of a streamed answer came; the client of streams says whether it is whole."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from container.generation_client import (
    Event,
    EventReader,
    StreamBroken,
    Usage,
    payload_parts,
)

Unframe = Callable[[bytes], bytes]
"""Returns the bytes of the container's answer in bytes that arrived."""


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """One answer; moments on the clock of the load tool, in seconds."""

    chunks: array[float]
    """Moments at which chunks with tokens arrived, in order; at least one."""
    prompt_tokens: int
    output_tokens: int

    @property
    def gaps(self) -> Iterator[float]:
        """Seconds between two chunks."""
        return (later - earlier for earlier, later in pairwise(self.chunks))


class EventStream:
    """AWS's event stream around an answer of InvokeEndpointWithResponseStream."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer

        self._buffer = EventStreamBuffer()

    def __call__(self, data: bytes, /) -> bytes:
        """Return the payloads that are whole. Raises StreamBroken for an exception event."""
        from botocore.eventstream import ParserError

        try:
            self._buffer.add_data(data)
            return b"".join(payload_parts(map(_member, self._buffer)))
        except ParserError as error:
            raise StreamBroken(f"The event stream is damaged ({error}).") from error


def _member(event: Any) -> Mapping[str, Any]:
    """Return an event as botocore gives it to callers of SageMaker's API."""
    headers: Mapping[str, str] = event.headers
    if headers.get(":message-type") == "event":
        return {headers[":event-type"]: {"Bytes": event.payload}}
    name = headers.get(":exception-type") or headers.get(":error-code") or "error"
    try:
        fault = json.loads(event.payload)
    except ValueError:
        fault = {"Message": headers.get(":error-message", "")}
    return {name: fault}


@dataclass(kw_only=True)
class StreamReader:
    """Notes when chunks of an answer in OpenAI's schema arrive.

    A chunk has tokens when it has a choice, whatever its text: a token may be part of a character.
    The chunk that only names the role of a chat's answer has none.
    """

    unframe: Unframe = bytes
    _events: EventReader = field(default_factory=EventReader)
    _chunks: array[float] = field(default_factory=lambda: array("d"))
    _usage: Usage | None = None
    _last: float = 0.0

    def read(self, data: bytes, now: float) -> None:
        """Read bytes that arrived now. Raises StreamBroken."""
        self._last = now
        self._note(self._events.read(self.unframe(data)))

    def end(self) -> TokenTimes:
        """Return the answer's times. Raises StreamBroken for one that is not whole."""
        self._note(self._events.end())
        if not self._chunks:
            raise StreamBroken("The stream brought no token.")
        if self._usage is None:
            raise StreamBroken("The stream has no usage (stream_options.include_usage).")
        return TokenTimes(self._chunks, self._usage.prompt_tokens, self._usage.completion_tokens)

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            self._usage = event.usage or self._usage
            if event.choices and not _is_role(event.choices[0]):
                self._chunks.append(self._last)


def _is_role(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    if not isinstance(delta, Mapping) or choice.get("finish_reason") is not None:
        return False
    return "role" in delta and not any(value for name, value in delta.items() if name != "role")
