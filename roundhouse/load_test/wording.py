"""Numbers and refusals in words."""

from __future__ import annotations

import json

from container.wire import sentence_of

SHOWN = 160


def status_words(status: int, body: bytes) -> str:
    """A refusal: its status and what the server says; behind SageMaker, the container's status and
    words.
    """
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or "error" in document:
        return _status(status, sentence_of(body))
    if document.get("OriginalMessage"):
        return _status(
            document.get("OriginalStatusCode", status),
            sentence_of(str(document["OriginalMessage"])),
        )
    said = [document[key] for key in ("Message", "message") if document.get(key)]
    return _status(status, str(said[0]) if said else sentence_of(body))


def _status(status: int, said: str) -> str:
    return f"HTTP {status}" + (f": {said[:SHOWN]}" if said else "")


def milliseconds(value: float | None) -> str:
    """Three digits that count; a dash where there is nothing."""
    if value is None:
        return "–"
    return (
        f"{value:,.0f} ms"
        if value >= 100
        else f"{value:.1f} ms"
        if value >= 10
        else f"{value:.2f} ms"
    )


def rate(value: float) -> str:
    """Requests, or rows, a second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def count(value: float) -> str:
    """A number of things."""
    return f"{value:,.0f}"
