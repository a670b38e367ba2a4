"""Requests of a file, one a line: as the endpoint takes them, or as SageMaker captured them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from engine_build.captures.bodies import Body, Unreadable, captured_lines, read_message
from engine_build.captures.exchanges import request_pairs, request_prompt, request_texts
from engine_build.errors import InputRefused
from onboarding.manifest import Prompts
from onboarding.values import Task

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes; a request in real time has 25 MB at most (InvokeEndpoint), captured in Base64 34 MB."""
LISTED_FAULTS = 20
JSON = "application/json"
CAPTURED = b'"captureData"'
EXAMPLE = '{"inputs": ["a text"]}'
EXAMPLES: dict[str, str] = {"text-ranking": '{"query": "a query", "texts": ["a text"]}'}
Text = str | tuple[str, str]
"""A text with its prompt, or a query and a text."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The texts of one request, and its body as it came."""

    texts: tuple[Text, ...]
    body: Body


@dataclass(kw_only=True)
class RequestFile:
    """A file that is read line by line, whatever its size.

    `progress` gets the share of bytes that were read.
    """

    path: Path
    task: Task
    prompts: Prompts | None
    progress: Callable[[float], None] = lambda share: None
    skipped: dict[str, int] = field(default_factory=dict)
    """Captured invocations that no endpoint could have read as texts, by reason."""
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0

    def requests(self) -> Iterator[Request]:
        """Yield every request. Raises InputRefused, in the end with every faulty line."""
        try:
            size = max(1, self.path.stat().st_size)
            with self.path.open("rb") as file:
                for number, line in self._lines(file):
                    request = self._request(number, line)
                    if request is not None:
                        yield request
                    if number % 256 == 0:
                        self.progress(file.tell() / size)
        except OSError as error:
            raise InputRefused(
                f"{self.path} cannot be read: {error.strerror}; give a file with a request on "
                "each line."
            ) from error
        if self.fault_count:
            raise InputRefused(self._refusal())

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE)
                self._note(number, f"it is longer than {LONGEST_LINE // 2**20} MiB")
            elif line.strip():
                yield number, line

    def _request(self, number: int, line: bytes) -> Request | None:
        """Return a line's request; None for one that was skipped, or whose fault was noted."""
        is_captured = CAPTURED in line
        try:
            body = _captured_body(line) if is_captured else Body(data=line, content_type=JSON)
            message = read_message(body, "inputs")
            if self.task == "text-ranking":
                texts: tuple[Text, ...] = request_pairs(message)
            else:
                prompt = request_prompt(message, self.prompts)
                texts = tuple(prompt + text for text in request_texts(message))
            if not texts:
                raise Unreadable("it has no texts")
        except Unreadable as error:
            if is_captured and not isinstance(error, _NoCapture):
                self.skipped[str(error)] = self.skipped.get(str(error), 0) + 1
            else:
                self._note(number, str(error))
            return None
        return Request(texts=texts, body=body)

    def _note(self, number: int, reason: str) -> None:
        self.fault_count += 1
        if len(self.faults) < LISTED_FAULTS:
            self.faults.append(f"{self.path}:{number}: {reason}")

    def _refusal(self) -> str:
        rest = self.fault_count - len(self.faults)
        more = f"\nand {rest} more" if rest else ""
        example = EXAMPLES.get(self.task, EXAMPLE)
        return (
            f"{self.fault_count} of its lines are no requests:\n" + "\n".join(self.faults) + more
            + f"\nWrite each line as the endpoint takes it, such as {example}, or give capture "
            "files of SageMaker."
        )  # fmt: skip


class _NoCapture(Unreadable):
    """A line that no capture file of SageMaker has."""


def _captured_body(line: bytes) -> Body:
    """Return the captured request of a line. Raises Unreadable."""
    captured = next(captured_lines(line.decode(errors="replace").strip()), None)
    if captured is None:
        raise _NoCapture("it is no JSON object of a capture file" if _is_json(line) else NO_JSON)
    if captured.request is None:
        raise Unreadable("the request was not captured")
    return captured.request


NO_JSON = "it is no JSON"


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
