"""Format numbers of load tests, and what servers answer to refused requests."""

from __future__ import annotations

import json

from container.wire import error_sentence

MAX_LETTERS = 160


def refusal(status: int, body: bytes) -> str:
    """Return a refusal's status and message; behind SageMaker, those of the container."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    message = error_sentence(body)
    if isinstance(document, dict) and "error" not in document:
        original = document.get("OriginalMessage")
        if original:
            status = document.get("OriginalStatusCode", status)
            message = error_sentence(str(original))
        else:
            messages = [document[key] for key in ("Message", "message") if document.get(key)]
            message = str(messages[0]) if messages else message
    return f"HTTP {status}" + (f": {message[:MAX_LETTERS]}" if message else "")


def milliseconds(value: float | None) -> str:
    """Format a latency to three digits; a dash for None."""
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} ms"


def per_second(value: float) -> str:
    """Format requests, or rows, a second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
