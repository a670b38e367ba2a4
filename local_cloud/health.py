"""Whether an instance's server is healthy, and what its log says when it is not."""

from __future__ import annotations

import http.client
import re
import threading
import time
from pathlib import Path

from local_cloud.container import Container
from local_cloud.server_client import ServerClient

POLL_SECONDS = 0.03
PING_SECONDS = 2.0
COMPLAINT = re.compile(r"error|refus|fail|cannot|exception", re.IGNORECASE)


class ServerError(Exception):
    """A variant's server did not become healthy; the message is the endpoint's failure reason."""


def wait_until_healthy(
    variant: str,
    container: Container,
    client: ServerClient,
    seconds: float,
    given_up: threading.Event,
) -> None:
    """Waits until the server answers `/ping` with 200; one that ends or takes too long is refused
    with its last words.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if given_up.is_set():
            raise ServerError(
                f"production variant {variant} was stopped while an instance of it started."
            )
        if ping(client) == 200:
            return
        status = container.exit_status()
        if status is not None:
            raise ServerError(_reason(variant, container, f"its server ended with status {status}"))
        time.sleep(POLL_SECONDS)
    raise ServerError(
        _reason(variant, container, f"its server was not healthy within {seconds:g} s")
    )


def ping(client: ServerClient) -> int | None:
    """What the server answers to `/ping`: 0 when it takes no connection, None when it takes longer
    than it should.
    """
    try:
        return client.request("GET", "/ping", timeout_seconds=PING_SECONDS).status
    except TimeoutError:
        return None
    except (OSError, http.client.HTTPException):
        return 0


def _reason(variant: str, container: Container, happened: str) -> str:
    said = last_complaint(container.spec.log.read_text(encoding="utf-8", errors="replace"))
    return (
        f"The primary container for production variant {variant} did not pass the ping health check: {happened}. "
        f"Its log's last sentence: {said}"
    )


def last_complaint(log: str) -> str:
    """The last of a log's final lines that complains, or simply the last one."""
    lines = [line.strip() for line in log.split("\n") if line.strip()][-20:]
    complaints = [line for line in lines if COMPLAINT.search(line)]
    return (complaints or lines or ["(nothing)"])[-1]


def keep_log(log: Path, folder: Path) -> str:
    """Copies an instance's log beside the fleet's folder, which is about to be removed, and says
    where.
    """
    if not log.exists():
        return ""
    place = folder.with_name(f"{folder.name}.{log.parent.name}.log")
    place.write_bytes(log.read_bytes())
    return f" (log: {place})"
