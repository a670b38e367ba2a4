"""Server-sent events on their way from the engine to a client: whole events, and an honest end."""

from __future__ import annotations

import json
from http import HTTPStatus

BOUNDARY = b"\n\n"
DONE = b"[DONE]"
DATA = b"data:"


class EventRelay:
    """The events of one stream.

    Who is sent `[DONE]` has the whole answer. vLLM sends it after an error event too; here nothing
    follows one. What is no whole event yet waits for its end, so that nothing follows half of one.
    """

    def __init__(self) -> None:
        self.failed = False
        """Whether an error event was passed on."""
        self.done = False
        """Whether `[DONE]` was passed on."""
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the whole events to pass on, of all that has come."""
        if self._rest or not chunk.endswith(BOUNDARY):
            chunk = self._rest + chunk
            end = chunk.rfind(BOUNDARY) + len(BOUNDARY) if BOUNDARY in chunk else 0
            chunk, self._rest = chunk[:end], chunk[end:]
        if not (self.failed or self.done or b'"error"' in chunk or DONE in chunk):
            return chunk
        return b"".join(
            event + BOUNDARY for event in chunk.split(BOUNDARY)[:-1] if self._passes(event)
        )

    def end(self, reason: str) -> bytes:
        """Return what is still to be sent when no more comes: an error event with the reason.

        Nothing of a stream that is done, or that said its error itself.
        """
        if self.failed or self.done:
            return b""
        self.failed = True
        return DATA + b" " + error_document(reason, "ServiceUnavailableError", 503) + BOUNDARY

    def _passes(self, event: bytes) -> bool:
        if self.failed or self.done:
            return False
        payload = event.removeprefix(DATA).strip()
        if payload == DONE:
            self.done = True
        elif event.startswith(DATA) and _is_error(payload):
            self.failed = True
        return True


def error_document(sentence: str, kind: str, status: int) -> bytes:
    """Return OpenAI's JSON of an error."""
    error = {"message": sentence, "type": kind, "param": None, "code": status}
    return json.dumps({"error": error}).encode()


def error_body(status: int, sentence: str) -> bytes:
    """Return OpenAI's JSON of an error of a status."""
    kind = HTTPStatus(status).phrase.replace(" ", "") + "Error"
    return error_document(sentence, kind, status)


def _is_error(payload: bytes) -> bool:
    try:
        document = json.loads(payload)
    except ValueError:
        return False
    return isinstance(document, dict) and bool(document.get("error"))
