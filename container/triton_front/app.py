"""Starts the server before Triton by its environment, which is the Python server's."""

from __future__ import annotations

from collections.abc import Sequence

from container.server.process import run_front
from container.server.telemetry.failure_log import FailureLog, stderr
from container.triton_front.server import TritonFront


def main(command: Sequence[str]) -> int:
    """Run Triton's command behind the server, and return the exit code."""
    log = FailureLog(stderr)
    try:
        return run_front(
            command,
            "tritonserver and its own arguments",
            lambda settings, listener: TritonFront(settings, listener, log).serve(command),
        )
    finally:
        log.close()
