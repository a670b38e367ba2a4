"""The `roundhouse` command: its commands, and how every error ends."""

from __future__ import annotations

import contextlib
import errno
import itertools
import sys

import typer

from roundhouse import interruption
from roundhouse.cli import (
    bench,
    build,
    check,
    compare,
    demo,
    deploy,
    destroy,
    drift,
    init,
    invoke,
    local_cloud,
    plan,
    promote,
    prune,
    recommend,
    rollback,
    status,
)
from roundhouse.errors import RoundhouseError

EXIT_CODES = (
    "Exit codes: 0 done · 1 refused, a fault in your files · 2 wrong usage, or drift · 3 an engine "
    "was not built · 4 a deployment was refused or rolled back · 5 this machine or the cloud is "
    "not ready · 6 a wrong answer, or a missed SLO · 130 Ctrl-C"
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

app = typer.Typer(
    name="roundhouse",
    no_args_is_help=True,
    add_completion=False,
    # Without rich, help comes three times as fast.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="From one YAML file to an engine compiled for its hardware, behind a SageMaker "
    "endpoint.\n\n"
    "`init` makes a repository or a model file, `check` finds its faults, `deploy` builds what is "
    "missing and deploys it, `invoke` sends it a request. To see it all work on this machine: "
    "`make demo`.",
    epilog=EXIT_CODES,
)
for function, example in (
    (init.init, init.EXAMPLE),
    (check.check, check.EXAMPLE),
    (plan.plan, plan.EXAMPLE),
    (build.build, build.EXAMPLE),
    (deploy.deploy, deploy.EXAMPLE),
    (status.status, status.EXAMPLE),
    (invoke.invoke, invoke.EXAMPLE),
    (bench.bench, bench.EXAMPLE),
    (compare.compare, compare.EXAMPLE),
    (recommend.recommend, recommend.EXAMPLE),
    (promote.promote, promote.EXAMPLE),
    (rollback.rollback, rollback.EXAMPLE),
    (drift.drift, drift.EXAMPLE),
    (destroy.destroy, destroy.EXAMPLE),
    (prune.prune, prune.EXAMPLE),
    (local_cloud.up, local_cloud.UP_EXAMPLE),
    (local_cloud.down, local_cloud.DOWN_EXAMPLE),
    (demo.demo, demo.EXAMPLE),
):
    app.command(epilog=f"Example: {example}")(function)


def exit_code() -> int:
    """Run this process's command line and return its exit code; print every error in one line."""
    message, code = None, 0
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        if _is_interruption(end):
            message, code = "Stopped.", 130
    except KeyboardInterrupt:
        message, code = "Stopped.", 130
    except Exception as error:
        message, code = (
            ("Stopped.", 130) if interruption.is_requested() else _message_and_code(error)
        )
    if message is not None:
        _print_error(message)
    if code:
        _print_json_error(message or "Wrong usage: standard error has the reason.", code)
    return code


def _is_interruption(end: BaseException | None) -> bool:
    """Return whether a Ctrl-C that typer caught ended the command; typer prints nothing then."""
    while end is not None and not isinstance(end, KeyboardInterrupt):
        end = end.__cause__ if end.__suppress_context__ else end.__context__
    return end is not None


def _message_and_code(error: Exception) -> tuple[str, int]:
    """Return the message and exit code of an error, of other packages and unforeseen ones too."""
    from local_cloud.lifecycle import CloudError
    from onboarding.fault import FaultsError
    from onboarding.lock import LockError

    if isinstance(error, RoundhouseError):
        return "\n".join([str(error), *getattr(error, "__notes__", ())]), error.exit_code
    if isinstance(error, FaultsError | LockError):
        return str(error), 1
    if isinstance(error, CloudError):
        return f"{str(error)[:1].upper()}{str(error)[1:]}.", 5
    if isinstance(error, OSError) and error.filename is not None:
        way_out = "free it or make it writable, then try again"
        return f"{error.filename}: {error.strerror}; {way_out}.", 5
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        where = "while the command wrote its output or a file"
        return f"{error.strerror}, {where}; free some, then try again.", 5
    return f"Unforeseen: {type(error).__name__}: {error}. Trace: {_write_crash_log(error)}", 5


def _write_crash_log(error: Exception) -> str:
    """Write the trace of an unforeseen error and return the file's path."""
    import traceback

    from roundhouse.paths import current_paths

    text = "".join(traceback.format_exception(error))
    try:
        log = current_paths().build / "logs" / "crash.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text, encoding="utf-8")
    except (OSError, RoundhouseError):
        return "could not be written"
    return str(log)


def _print_error(message: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True).print(f"[red]{escape(message)}[/red]", soft_wrap=True, highlight=False)


def _print_json_error(message: str, code: int) -> None:
    """Print an error as JSON where `--format json` is given and no document was printed."""
    words = sys.argv[1:]
    is_json = "--format=json" in words or ("--format", "json") in itertools.pairwise(words)
    if not is_json:
        return
    from roundhouse.report import print_json, printed_documents

    if not printed_documents:
        with contextlib.suppress(OSError):
            print_json({"error": message, "exit_code": code})
