"""A client of text generators for boto3 callers: OpenAI's requests in, checked streams out.

    client = GenerationClient(runtime=boto3.client("sagemaker-runtime"), endpoint="prod-chat")
    for event in client.stream(chat_request("What is the capital of France?", max_tokens=50)):
        print(event.text, end="", flush=True)

A stream is whole when all `n` answers have a finish reason and `[DONE]` has come. All else raises
StreamBroken: an error event inside a 200 answer, an end without `[DONE]`, a line that is no event,
an event of another shape, bytes that are no UTF-8, a lost connection, SageMaker's ModelStreamError.
Parts may be split anywhere, within a character too. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JSON_TYPE = "application/json"
DONE = b"[DONE]"
FIELDS = (b"event", b"id", b"retry")
"""Of server-sent events beside data, which vLLM does not use and a proxy may."""
UNFINISHED_REASONS = ("abort", "error")
"""Finish reasons of answers that the engine gave up."""
EXCERPT = 200
_CALL = {"index": int, "id": str, "function": {"name": str, "arguments": str}}
_MESSAGE = {"content": str, "tool_calls": [_CALL]}
_CHOICE = {"index": int, "finish_reason": str, "text": str, "delta": _MESSAGE, "message": _MESSAGE}
_SHAPE = {"choices": [_CHOICE], "usage": {"prompt_tokens": int, "completion_tokens": int}}
"""Of an event, as far as it is read; any key may be absent or null."""


class StreamBroken(Exception):
    """A stream, or an answer, that is not whole; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of a request as the engine counts them."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call of a tool; `arguments` is JSON text. Of an event: what it adds to the call `index`."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Event:
    """One event of a stream, OpenAI's chunk, or a whole answer in the same terms."""

    document: Mapping[str, Any]

    @property
    def choices(self) -> Sequence[Mapping[str, Any]]:
        """Return the answers that it adds to; none in the event of the usage."""
        return self.document.get("choices") or ()

    @property
    def text(self) -> str:
        """Return the text that it adds, of all its answers."""
        return "".join(_text(choice) for choice in self.choices)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return what it adds to calls of tools."""
        messages = map(_message, self.choices)
        calls = (call for message in messages for call in message.get("tool_calls") or ())
        return tuple(
            ToolCall(
                index=number if call.get("index") is None else call["index"],
                id=str(call.get("id") or ""),
                name=str((call.get("function") or {}).get("name") or ""),
                arguments=str((call.get("function") or {}).get("arguments") or ""),
            )
            for number, call in enumerate(calls)
        )

    @property
    def usage(self) -> Usage | None:
        """Return the tokens of the request, where this event has them."""
        usage = self.document.get("usage")
        if usage is None:
            return None
        return Usage(
            prompt_tokens=usage.get("prompt_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
        )


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer; of several answers the first."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage | None


def chat_request(
    prompt: str,
    *,
    system: str | None = None,
    max_tokens: int | None = None,
    stream: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return the request of a chat of one prompt; `more` are OpenAI's other keys.

    A stream ends with the usage.
    """
    messages = [] if system is None else [{"role": "system", "content": system}]
    request: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": prompt}]}
    if max_tokens is not None:
        request["max_tokens"] = max_tokens
    if stream:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
    return request | more


def answer_count(request: Mapping[str, Any]) -> int:
    """Return how many answers a request asks for."""
    count = request.get("n")
    return count if isinstance(count, int) else 1


def read_events(chunks: Iterable[bytes], *, answers: int = 1) -> Iterator[Event]:
    """Yield the events of a stream of bytes, however they are split. Raises StreamBroken.

    What was yielded before a StreamBroken is a part of the answer. Whatever `chunks` raises breaks
    the stream; so does [DONE] before so many answers have ended.
    """
    reader, parts = EventReader(answers=answers), iter(chunks)
    while not reader.is_done:
        try:
            chunk = next(parts)
        except StopIteration:
            break
        except StreamBroken:
            raise
        except Exception as fault:
            raise StreamBroken(
                f"The connection was lost: {fault or type(fault).__name__}"
            ) from fault
        yield from reader.read(chunk)
    yield from reader.end()


class EventReader:
    """Reads the bytes of a stream as they come, for callers who cannot wait in an iterator."""

    def __init__(self, *, answers: int = 1) -> None:
        self._answers = answers
        self.is_done = False
        """Whether [DONE] has come; what comes after it is not read."""
        self._rest = b""
        self._data: list[bytes] = []
        self._open_choices: set[int] = set()
        self._finished: set[int] = set()

    def read(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that are whole with these bytes. Raises StreamBroken."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield from self._line(line.removesuffix(b"\r"))

    def end(self) -> Iterator[Event]:
        """Yield what the last bytes hold. Raises StreamBroken where the answer is not whole."""
        if not self.is_done:
            yield from self._line(self._rest)
            yield from self._line(b"")
        if not self.is_done:
            raise StreamBroken("The stream ended without [DONE], so its answer is not whole.")

    def _line(self, line: bytes) -> Iterator[Event]:
        """Yield the event that a line ends; several lines of data are one."""
        name, colon, value = line.partition(b":")
        if self.is_done:
            return
        if not line:
            data, self._data = self._data, []
            if data:
                yield from self._payload(b"\n".join(data))
        elif name == b"data" and colon:
            self._data.append(value.removeprefix(b" "))
        elif name and not (name in FIELDS and colon):
            excerpt = line[:EXCERPT].decode(errors="replace")
            raise StreamBroken(f"A line of the stream is no event: {excerpt!r}.")

    def _payload(self, payload: bytes) -> Iterator[Event]:
        if payload == DONE:
            if self._open_choices or len(self._finished) < max(1, self._answers):
                raise StreamBroken("The stream says that it is done, but not why its answer ended.")
            self.is_done = True
            return
        event = _event(payload)
        for choice in event.choices:
            index, reason = choice.get("index") or 0, choice.get("finish_reason")
            if reason in UNFINISHED_REASONS:
                raise StreamBroken(f"The engine gave the answer up ({reason}).")
            (self._finished if reason else self._open_choices).add(index)
        self._open_choices -= self._finished
        yield event


def read_answer(events: Iterable[Event]) -> Answer:
    """Return the first answer of a stream, put together. Raises what the stream raises."""
    texts: list[str] = []
    calls: dict[int, ToolCall] = {}
    reason, usage = "", None
    for event in events:
        first = Event({"choices": [row for row in event.choices if not row.get("index")]})
        texts.append(first.text)
        for part in first.tool_calls:
            before = calls.get(part.index, ToolCall(index=part.index, id="", name="", arguments=""))
            calls[part.index] = ToolCall(
                index=part.index,
                id=before.id or part.id,
                name=before.name + part.name,
                arguments=before.arguments + part.arguments,
            )
        for choice in first.choices:
            reason = str(choice.get("finish_reason") or reason)
        usage = usage if event.usage is None else event.usage
    return Answer(
        text="".join(texts),
        tool_calls=tuple(calls[index] for index in sorted(calls)),
        finish_reason=reason,
        usage=usage,
    )


def read_completion(body: bytes, *, answers: int = 1) -> Answer:
    """Return the first answer of a request for so many, not streamed. Raises StreamBroken."""
    event = _event(body)
    reasons = [choice.get("finish_reason") for choice in event.choices]
    if len(reasons) < max(1, answers) or not all(reasons) or {*reasons} & {*UNFINISHED_REASONS}:
        raise StreamBroken("Not every answer says why it ended, so it may not be whole.")
    return read_answer([event])


def payload_parts(stream: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the bytes of InvokeEndpointWithResponseStream's event stream. Raises StreamBroken.

    botocore raises some of AWS's errors and gives others as members.
    """
    for member in stream:
        part = member.get("PayloadPart")
        if part is None:
            faults: list[tuple[str, Mapping[str, Any]]] = list(member.items())
            name, fault = faults[0] if faults else ("nothing", {})
            code, words = fault.get("ErrorCode", ""), fault.get("Message", "")
            raise StreamBroken(f"SageMaker broke the stream ({name} {code}): {words}")
        yield part["Bytes"]


@dataclass(frozen=True, kw_only=True)
class GenerationClient:
    """One text generator; `runtime` is boto3's `sagemaker-runtime` client.

    `component` is the inference component behind the endpoint; None: the endpoint has none.
    botocore's errors of the call itself stay as they are.
    """

    runtime: Any
    endpoint: str
    component: str | None = None

    def stream(self, request: Mapping[str, Any]) -> Iterator[Event]:
        """Yield the events of a streamed request. Raises StreamBroken."""
        arguments = self._arguments({**request, "stream": True})
        answer = self.runtime.invoke_endpoint_with_response_stream(**arguments)
        return read_events(payload_parts(answer["Body"]), answers=answer_count(request))

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """Return a whole answer; SageMaker gives one minute for it. Raises StreamBroken."""
        arguments = self._arguments({**request, "stream": False, "stream_options": None})
        body = self.runtime.invoke_endpoint(**arguments)["Body"]
        try:
            data = body.read()
        except Exception as fault:
            raise StreamBroken(f"The connection was lost before the answer: {fault}") from fault
        return read_completion(data, answers=answer_count(request))

    def _arguments(self, request: Mapping[str, Any]) -> dict[str, Any]:
        component = {} if self.component is None else {"InferenceComponentName": self.component}
        body = json.dumps({key: value for key, value in request.items() if value is not None})
        return {
            "EndpointName": self.endpoint,
            "ContentType": JSON_TYPE,
            "Body": body.encode(),
            **component,
        }


def _event(payload: bytes) -> Event:
    try:
        document = json.loads(payload.decode())
    except UnicodeDecodeError as fault:
        raise StreamBroken("A line of the stream is not UTF-8.") from fault
    except (ValueError, RecursionError) as fault:
        excerpt = payload[:EXCERPT].decode(errors="replace")
        raise StreamBroken(f"A line of the stream is not JSON: {excerpt!r}.") from fault
    if not isinstance(document, dict):
        raise StreamBroken(f"An event of the stream is {str(document)[:EXCERPT]!r}, no object.")
    error = document.get("error")
    if error or document.get("object") == "error":
        raise StreamBroken(f"The stream broke off: {error_sentence(document)}")
    _check_shape("event", document, _SHAPE)
    return Event(document)


def _check_shape(name: str, value: object, shape: Any) -> None:
    """Refuse a value of another shape than Event reads: a type, or one in a list or by key."""
    kind = shape if isinstance(shape, type) else type(shape)
    if type(value) is not kind:
        raise StreamBroken(f"An event's {name} is {str(value)[:EXCERPT]!r}, no {kind.__name__}.")
    if isinstance(value, list):
        for row in value:
            _check_shape(f"part of {name}", row, shape[0])
    elif isinstance(value, dict):
        for key, inner in shape.items():
            if value.get(key) is not None:
                _check_shape(key, value[key], inner)


def error_sentence(document: Mapping[str, Any]) -> str:
    """Return the sentence of OpenAI's error, or of vLLM's older one."""
    error = document.get("error")
    inner = error if isinstance(error, Mapping) else document
    words = inner.get("message") or error or "it does not say why"
    return str(words)[:2000]


def _message(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a choice holds: a stream's delta, or a whole message."""
    return choice.get("delta") or choice.get("message") or {}


def _text(choice: Mapping[str, Any]) -> str:
    return str(choice.get("text") or _message(choice).get("content") or "")
