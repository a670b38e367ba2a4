"""Starts the server before Triton by its environment, which is the Python server's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import uvloop

from container.server.process import (
    CannotListen,
    ignore_stop_signals,
    listening_socket,
    without_executor_wait,
)
from container.server.settings import SettingsFault, process_settings
from container.server.telemetry.failure_log import FailureLog, stderr
from container.triton_front.server import TritonFront

SETTING, COMMAND = 2, 4


def main(command: Sequence[str]) -> int:
    """Run Triton's command behind the server, and return the exit code."""
    if not command:
        return _refuse(SETTING, "No command; the arguments are tritonserver and its own arguments.")
    log = FailureLog(stderr)
    try:
        settings = process_settings()
        with listening_socket(settings) as listener:
            front = TritonFront(settings, listener, log)
            code: int = uvloop.run(without_executor_wait(front.serve(command)))
            return code
    except SettingsFault as fault:
        return _refuse(SETTING, str(fault))
    except CannotListen as fault:
        return _refuse(COMMAND, str(fault))
    except OSError as fault:
        return _refuse(COMMAND, f"{command[0]} cannot be started ({fault.strerror}).")
    finally:
        ignore_stop_signals()
        log.close()


def _refuse(code: int, sentence: str) -> int:
    with suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)
    return code
