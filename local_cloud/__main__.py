"""`python -m local_cloud --root DIR --environments DIR --state DIR --port N`: one local cloud."""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import os
import socket
import sys
import threading
from pathlib import Path

from local_cloud.settings import (
    Settings,
    SettingsError,
    configure_emulator,
    seconds_per_minute,
)

MINISTACK = "1.5.33"


def main() -> None:
    """Read the arguments, prepare MiniStack, and serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m local_cloud", description=__doc__)
    for name, kind, is_required, text in (
        ("--root", Path, True, "folder of the packages that servers and builds run"),
        ("--environments", Path, True, "folder of the environments that run them"),
        ("--state", Path, True, "folder for everything that the cloud writes"),
        ("--port", int, True, "free port on 127.0.0.1"),
        ("--listener", int, False, "file descriptor of a socket that is bound to the port"),
        ("--starter", int, False, "file descriptor of a socket whose early end ends the cloud"),
    ):
        parser.add_argument(name, type=kind, required=is_required, help=text)
    arguments = parser.parse_args()
    if arguments.starter is not None:
        starter = socket.socket(fileno=arguments.starter)
        threading.Thread(target=_end_without, args=(starter,), daemon=True).start()
    try:
        pace = seconds_per_minute()
    except SettingsError as error:
        sys.exit(str(error))
    settings = Settings(
        root=arguments.root.resolve(),
        environments=arguments.environments.resolve(),
        state=arguments.state.resolve(),
        port=arguments.port,
        listener=arguments.listener,
        seconds_per_minute=pace,
    )
    settings.state.mkdir(parents=True, exist_ok=True)
    os.chdir(settings.root)
    configure_emulator(settings)
    _serve(settings)


def _end_without(starter: socket.socket) -> None:
    """End at once where the starter is gone before the cloud has answered."""
    if not starter.recv(1):
        os._exit(1)


def _serve(settings: Settings) -> None:
    """Serve, then exit at once: threads that wait for a server or a build have nothing left."""
    found = importlib.metadata.version("ministack")
    if found != MINISTACK:
        sys.exit(
            f"the local cloud hangs on private names of ministack {MINISTACK}, found {found}: "
            f"install {MINISTACK}"
        )
    from local_cloud.emulator import serve

    try:
        serve(settings)
    except OSError as error:
        sys.exit(f"the local cloud cannot listen on 127.0.0.1:{settings.port}: {error}")
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
