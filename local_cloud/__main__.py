"""`python -m local_cloud --root REPO --state DIR --port N`: one local cloud, in the foreground."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from local_cloud.settings import Settings, SettingsError, configure_emulator, seconds_per_minute


def main() -> None:
    """Reads the arguments, prepares MiniStack, and serves until told to end."""
    parser = argparse.ArgumentParser(prog="python -m local_cloud", description=__doc__)
    parser.add_argument(
        "--root",
        type=Path,
        required=True,
        help="repository whose environments run the servers and builds",
    )
    parser.add_argument(
        "--state", type=Path, required=True, help="folder for everything that the cloud writes"
    )
    parser.add_argument("--port", type=int, required=True, help="free port on 127.0.0.1")
    parser.add_argument(
        "--listener", type=int, help="file descriptor of a socket that is bound to the port already"
    )
    arguments = parser.parse_args()
    try:
        pace = seconds_per_minute()
    except SettingsError as error:
        sys.exit(str(error))
    root, state = arguments.root.resolve(), arguments.state.resolve()
    settings = Settings(
        root=root,
        state=state,
        port=arguments.port,
        listener=arguments.listener,
        seconds_per_minute=pace,
    )
    settings.state.mkdir(parents=True, exist_ok=True)
    os.chdir(settings.root)
    configure_emulator(settings)
    _serve(settings)


def _serve(settings: Settings) -> None:
    """Serves, then leaves at once.

    Threads that still wait for a server or a build have nothing left to wait for.
    """
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
