"""Makes the environments that are missing, whole or not at all. Standard library only.

An environment is whole once a stamp is written, last of all: the digest of what it is made from. A
folder without its stamp is removed and made again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from roundhouse.dev import doctor, recipes
from roundhouse.dev.recipes import (
    CUDA_BUILD,
    DEV_STAMP,
    NODE,
    OPTIONAL,
    RECIPES,
    STAMP,
    UV,
    Recipe,
    TorchBuild,
)
from roundhouse.errors import NotReadyError
from roundhouse.paths import Paths, current_paths
from roundhouse.processes import Command, Processes, Run

SCRIPT = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys

sys.excepthook = lambda kind, *of_it: kind is KeyboardInterrupt or sys.__excepthook__(kind, *of_it)
from roundhouse.__main__ import main

main()
"""
"""Until the command is loaded, Ctrl-C ends it in silence.

Both a shell script and a Python module: a shebang would break on long paths and on paths with
spaces."""
MAX_AT_ONCE = 3
PROGRESS_SECONDS = 15


def install_command(root: Path, environment: Path) -> Path:
    """Write bin/roundhouse, and the path file that lets it import this repository."""
    packages = next((environment / "lib").glob("python3.*")) / "site-packages"
    script = environment / "bin" / "roundhouse"
    _write(packages / "roundhouse.pth", f"{root}\n")
    if _write(script, SCRIPT.format(python=environment / "bin" / "python")):
        script.chmod(0o755)
    return script


def _write(file: Path, text: str) -> bool:
    """Return whether the file had to be written."""
    if _text(file) == text:
        return False
    file.write_text(text, encoding="utf-8")
    return True


def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.is_file() else None


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """The repository, the interpreter and the runner that environments are made with.

    `code` holds requirements/; None: `root` does. `stop` ends every process of the runner.
    `torch_index`: an index with builds of torch for CPUs, in the place of PyTorch's own.
    `torch_lock`: environments with torch are installed one after the other, since uv downloads and
    keeps anew what another of its processes is downloading.
    """

    root: Path
    python: Path
    run: Run
    say: Callable[[str], None]
    stop: Callable[[], None] = lambda: None
    torch_index: str | None = None
    torch_lock: threading.Lock = field(default_factory=threading.Lock)
    code: Path | None = None

    def is_missing(self, recipe: Recipe) -> bool:
        """Return whether an environment has to be made."""
        stamp = _text(self.root / recipe.folder / STAMP)
        return stamp != recipe.digest(self.root, self.python, self.code)

    def is_missing_dev(self, recipe: Recipe) -> bool:
        """Return whether its additions for tests and checks have to be made."""
        stamp = _text(self.root / recipe.folder / DEV_STAMP)
        return recipe.dev is not None and stamp != recipe.dev_digest(self.root)


def this_workshop(root: Path, run: Processes, code: Path | None = None) -> Workshop:
    """Return the workshop of this process, and put uv's cache on the disk of its environments."""
    if (cache := cache_folder(root, os.environ)) is not None:
        os.environ["UV_CACHE_DIR"] = str(cache)
    return Workshop(
        root=root,
        python=Path(os.path.realpath(sys.executable)),
        run=run,
        say=lambda line: print(line, flush=True),
        stop=run.stop,
        torch_index=os.environ.get("TORCH_INDEX") or None,
        code=code,
    )


def cache_folder(root: Path, variables: Mapping[str, str]) -> Path | None:
    """Return uv's cache when its own lies on another disk, where no environment can link its files.

    None: where it lies is right, or the user's choice.
    """
    if "UV_CACHE_DIR" in variables:
        return None
    home = Path(variables.get("XDG_CACHE_HOME") or Path(variables.get("HOME", "/"), ".cache"))
    disk = next(folder for folder in (home, *home.parents) if folder.is_dir()).stat().st_dev
    return None if disk == root.stat().st_dev else root / ".venvs" / "cache"


def prepare(
    workshop: Workshop, chosen: Sequence[Recipe] = RECIPES, *, dev: bool = False
) -> tuple[str, ...]:
    """Make whatever is missing and return its names.

    Raises NotReadyError with the first fault; what was made whole stays.
    """
    missing = tuple(
        recipe
        for recipe in chosen
        if workshop.is_missing(recipe) or (dev and workshop.is_missing_dev(recipe))
    )
    if recipes.COMMAND in chosen and not workshop.is_missing(recipes.COMMAND):
        install_command(workshop.root, workshop.root / recipes.COMMAND.folder)
    if not missing:
        return ()
    if missing != (NODE,) and workshop.is_missing(UV):
        make(workshop, UV)
    torch = CUDA_BUILD
    if any(recipe.has_torch and workshop.is_missing(recipe) for recipe in missing):
        torch = choose_torch(workshop)
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        futures = {
            pool.submit(make, workshop, recipe, dev=dev, torch=torch): recipe.name
            for recipe in missing
        }
        try:
            _follow(workshop, futures)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workshop.stop()
            raise
    return tuple(recipe.name for recipe in missing)


def prepare_local_cloud(paths: Paths) -> None:
    """Make what the local cloud needs where the packages are installed; else `make` does."""
    if paths.is_installed:
        prepare_for_team(this_workshop(paths.repository, Processes(), paths.code))


def prepare_for_team(workshop: Workshop, machine: doctor.Machine | None = None) -> None:
    """Make what the local cloud needs beside a team's repository, by the locks of the package.

    The cdk command line is that of the repository's package.json. Raises NotReadyError, also with
    whatever `machine` lacks; None: this one.
    """
    own = replace(workshop, code=None)
    if not own.is_missing(NODE) and not any(map(workshop.is_missing, recipes.LOCAL)):
        return
    root, found = workshop.root, machine or doctor.this_machine(workshop.root)
    lacks = doctor.missing(found, root, doctor.needed_disk_gib(root, chat=False))
    lines = [f"  missing: {thing}\n           {line}" for thing, line in lacks]
    if lines:
        raise NotReadyError("\n".join(["This machine is not ready for Roundhouse:", *lines]))
    prepare(own, (NODE,))
    prepare(workshop, recipes.LOCAL)


def choose_torch(workshop: Workshop) -> TorchBuild:
    """Return the build of torch for new environments: PyTorch's for CPUs where it can be had.

    Else PyPI's, as wherever an environment holds that one already: torch lies on the disk once.
    """
    build = recipes.cpu_build(workshop.torch_index)
    if any(_holds_cuda(workshop, recipe) for recipe in (*RECIPES, *OPTIONAL.values())):
        return CUDA_BUILD
    outcome = workshop.run(recipes.probe_command(build, workshop.root, workshop.code))
    if outcome.code == 0:
        return build
    index = workshop.torch_index or "PyTorch's index of CPU builds"
    workshop.say(
        f"  {index} does not give the locked torch within seconds: taking PyPI's, with NVIDIA's "
        "libraries (5 GB)"
    )
    return CUDA_BUILD


def _holds_cuda(workshop: Workshop, recipe: Recipe) -> bool:
    builds = (workshop.root / recipe.folder).glob("lib/python3.*/site-packages/torch-*.dist-info")
    return any("+cpu" not in build.name for build in builds) and not workshop.is_missing(recipe)


def _follow(workshop: Workshop, futures: dict[Future[None], str]) -> None:
    begin, shown_at = time.monotonic(), 0.0
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        seconds = time.monotonic() - begin
        if pending and seconds - shown_at >= PROGRESS_SECONDS:
            shown_at = seconds
            running = ", ".join(sorted(futures[f] for f in pending if f.running()))
            workshop.say(f"  … {seconds:4.0f} s, making {running}")


def make(
    workshop: Workshop, recipe: Recipe, *, dev: bool = False, torch: TorchBuild = CUDA_BUILD
) -> None:
    """Make one environment, and its additions when asked. Raises NotReadyError.

    A folder that a link leads out of the repository is another checkout's, and stays as it is.
    """
    begin, root, folder = time.monotonic(), workshop.root, workshop.root / recipe.folder
    if not folder.resolve().is_relative_to(root.resolve()):
        raise NotReadyError(
            f"{folder}: leads to {folder.resolve()}, outside this repository, and was made for "
            "other files; remove the link, then run the same command again."
        )
    if workshop.is_missing(recipe):
        shutil.rmtree(folder, ignore_errors=True)
        commands = recipes.creation_commands(
            recipe, root, workshop.python, torch, code=workshop.code
        )
        with workshop.torch_lock if recipe.has_torch else nullcontext():
            _run(workshop, recipe, commands)
        if recipe.modules:
            _import(workshop, recipe)
        if recipe is recipes.COMMAND:
            install_command(root, folder)
        stamp = recipe.digest(root, workshop.python, workshop.code)
        (folder / STAMP).write_text(stamp, encoding="utf-8")
    if dev and workshop.is_missing_dev(recipe):
        _run(workshop, recipe, recipes.dev_commands(recipe, root))
        (folder / DEV_STAMP).write_text(recipe.dev_digest(root), encoding="utf-8")
    workshop.say(f"  made {recipe.folder:<16} {time.monotonic() - begin:5.1f} s")


def _run(workshop: Workshop, recipe: Recipe, commands: Sequence[Command]) -> None:
    for command in commands:
        outcome = workshop.run(command)
        if outcome.code != 0:
            raise NotReadyError(
                f"{recipe.folder} could not be made: `{command}` ended with {outcome.code}: "
                f"{outcome.last_lines()}; remove the cause, then run the same command again."
            )


def _import(workshop: Workshop, recipe: Recipe) -> None:
    command = recipes.import_command(recipe, workshop.root)
    outcome = workshop.run(command)
    if outcome.code != 0:
        raise NotReadyError(
            f"{recipe.folder} is installed, but cannot be used: `{command}` ended with "
            f"{outcome.code}: {outcome.last_lines(1)}; install what it names (`make doctor`), then "
            "run the same command again, which makes this environment anew."
        )


def main(arguments: Sequence[str], workshop: Workshop) -> int:
    """Return exit code 5 when an environment could not be made, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make environments", description=__doc__)
    for flag, text in (
        ("--dev", "with what tests and checks need"),
        ("--also", "those that are named beside all others"),
    ):
        parser.add_argument(flag, action="store_true", help=text)
    optional = f"environments that are made only by name: {', '.join(OPTIONAL)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=optional)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in OPTIONAL]:
        parser.error(f"unknown environment {unknown[0]}; allowed: {', '.join(OPTIONAL)}")
    try:
        named = tuple(OPTIONAL[name] for name in options.names)
        whole = RECIPES if workshop.code in (None, workshop.root) else recipes.LOCAL
        others = () if named and not options.also else whole
        prepare(workshop, (*named, *others), dev=options.dev)
    except NotReadyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Stopped; what was half made is made again next time.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    here = current_paths()
    code = main(sys.argv[1:], this_workshop(here.repository, Processes(), here.code))
    # Threads that wait for an ended process must not hold up a Ctrl-C.
    sys.stdout.flush()
    os._exit(code)
