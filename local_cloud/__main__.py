"""`python -m local_cloud --root REPO --state DIR --port N`: one local cloud, in the foreground."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from local_cloud.settings import (
    Settings,
    SettingsError,
    configure_emulator,
    github_keys_url,
    seconds_per_minute,
)


def main() -> None:
    """Read the arguments, prepare MiniStack, and serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m local_cloud", description=__doc__)
    for name, kind, is_required, text in (
        ("--root", Path, True, "repository whose environments run the servers and builds"),
        ("--state", Path, True, "folder for everything that the cloud writes"),
        ("--port", int, True, "free port on 127.0.0.1"),
        ("--listener", int, False, "file descriptor of a socket that is bound to the port"),
    ):
        parser.add_argument(name, type=kind, required=is_required, help=text)
    arguments = parser.parse_args()
    try:
        pace = seconds_per_minute()
    except SettingsError as error:
        sys.exit(str(error))
    settings = Settings(
        root=arguments.root.resolve(),
        state=arguments.state.resolve(),
        port=arguments.port,
        listener=arguments.listener,
        seconds_per_minute=pace,
        github_keys_url=github_keys_url(),
    )
    settings.state.mkdir(parents=True, exist_ok=True)
    os.chdir(settings.root)
    configure_emulator(settings)
    _serve(settings)


def _serve(settings: Settings) -> None:
    """Serve, then exit at once: threads that wait for a server or a build have nothing left."""
    from local_cloud.ministack.hooks import HookError, check_hooks

    try:
        check_hooks()
    except HookError as error:
        sys.exit(str(error))
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
