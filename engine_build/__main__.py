"""`python -m engine_build`.

Reads arguments and environment once, wires a build, and turns its end into an exit code.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import TextIO

from engine_build.build import BuiltNetworks, Result, build, build_networks
from engine_build.context import BuildContext
from engine_build.errors import BuildError, InputRefused
from engine_build.log import Log
from engine_build.machine import peak_mib
from engine_build.options import Options, options, wants_json
from engine_build.request import build_request
from engine_build.runner import ProcessRunner
from engine_build.settings import settings
from engine_build.store import store_at
from engine_build.work_folder import WorkFolder
from onboarding.names import engine_card_path

INTERRUPTED = 130


def main(
    arguments: Sequence[str], environment: Mapping[str, str], stdout: TextIO, stderr: TextIO
) -> int:
    """Exit codes: 0 built or known; 1, 3, 4, 5, 6 as in errors.py; 130 interrupted."""
    log = Log(stderr)
    try:
        wanted = options(arguments)
    except InputRefused as error:
        return _failed(error.exit_code, str(error), log, stdout if wants_json(arguments) else None)
    with_json = stdout if wanted.format == "json" else None
    try:
        with ExitStack() as stack:
            context = _context(wanted, environment, log, stack)
            result = build_networks(context) if wanted.networks_only else build(context)
            log.note(f"peak memory {peak_mib():.0f} MiB")
        _print_result(_format_result(result, log, as_json=wanted.format == "json"), stdout)
        return 0
    except BuildError as error:
        return _failed(error.exit_code, str(error), log, with_json)
    except OSError as error:
        return _failed(1, _disk_failure(error), log, with_json)
    except KeyboardInterrupt:
        return _failed(
            INTERRUPTED,
            "interrupted; the same command goes on from what is finished.",
            log,
            with_json,
        )
    except Exception as error:
        log.note(traceback.format_exc())
        reason = " ".join(str(error).split())[:300]
        sentence = (
            f"unforeseen fault, {type(error).__name__}: {reason}; please report it with the log."
        )
        return _failed(1, sentence, log, with_json)


def _context(
    wanted: Options, environment: Mapping[str, str], log: Log, stack: ExitStack
) -> BuildContext:
    resolved = build_request(wanted, log)
    work = stack.enter_context(WorkFolder(wanted.out))
    log.keep(work.log_path)
    runner = ProcessRunner(log)
    runner.record(work.script_path)
    return BuildContext(
        request=resolved,
        settings=settings(environment),
        log=log,
        runner=runner,
        work=work,
        publish_to=None
        if wanted.publish is None
        else store_at(wanted.publish, region=resolved.region),
        code_root=Path(__file__).resolve().parent.parent,
        now=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _format_result(result: Result | BuiltNetworks, log: Log, *, as_json: bool) -> str:
    seconds = {name: round(taken, 2) for name, taken in log.seconds.items()}
    if isinstance(result, BuiltNetworks):
        fields = {
            "status": "networks",
            "network_keys": result.keys,
            "place": result.place,
            "seconds": seconds,
        }
        keys = ", ".join(f"{name} {key}" for name, key in result.keys.items())
        return json.dumps(fields) if as_json else f"Networks are in {result.place}: {keys}."
    manifest, archive = result.entry.manifest, result.entry.archive
    if not as_json:
        verb = "is there already" if result.status == "known" else "is built"
        return (
            f"Engine {manifest.engine_key} of {manifest.model} {verb}: "
            f"{result.place}/{archive.path} ({manifest.precision}). "
            f"Its card: {result.place}/{engine_card_path(manifest.engine_key)}."
        )
    return json.dumps(
        {
            "status": result.status,
            "engine_key": manifest.engine_key,
            "place": result.place,
            "archive": archive.model_dump(mode="json"),
            "card": engine_card_path(manifest.engine_key),
            "precision": manifest.precision,
            "decision": manifest.decision,
            "seconds": seconds,
        }
    )


def _print_result(text: str, stdout: TextIO) -> None:
    """Says it at once, while a stream that nobody reads can still be told from one that is read.

    Raises InputRefused.
    """
    try:
        print(text, file=stdout, flush=True)
    except (OSError, ValueError) as error:
        # Closed, or Python would try once more at its end and say so with a traceback.
        with suppress(OSError):
            stdout.close()
        raise InputRefused(
            f"stdout takes no result ({error}); mend it, and run the same command again."
        ) from error


def _failed(code: int, reason: str, log: Log, stdout: TextIO | None) -> int:
    place = "" if log.path is None else f" (log: {log.path})"
    if stdout is not None:
        failure = {
            "status": "failed",
            "exit_code": code,
            "reason": reason,
            "log": None if log.path is None else str(log.path),
        }
        with suppress(InputRefused):
            _print_result(json.dumps(failure), stdout)
    log.line(f"FAILED: {reason}{place}")
    return code


def _disk_failure(error: OSError) -> str:
    return (
        f"{error.filename or 'the disk'}: {error.strerror or error}; repair that, and run the same "
        "command again."
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the build as Ctrl-C does, once, and with it the processes under way.

    They have sessions of their own, which a signal to this one does not reach.
    """
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    # PyTorch's threads wait for each other in a loop; where other work has a core, that made the
    # reference 2 to 5 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    signal.signal(signal.SIGTERM, _interrupt)
    # None where a shell closed them.
    streams = (io.StringIO() if stream is None else stream for stream in (sys.stdout, sys.stderr))
    sys.exit(main(sys.argv[1:], os.environ, *streams))
