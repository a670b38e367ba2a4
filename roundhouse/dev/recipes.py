"""The environments of this repository: what each is made from, and by which commands.

Standard library only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundhouse.processes import Command

TORCH = "torch==2.13.0"
STAMP = ".roundhouse-stamp"
DEV_STAMP = ".roundhouse-dev-stamp"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One environment: its folder, and the locked files it is made from.

    `dev` is what tests and checks add.
    """

    name: str
    folder: str
    inputs: tuple[str, ...]
    dev: str | None = None
    extra: tuple[str, ...] = ()
    """Pinned requirements installed by plain pip without dependencies, from wherever pip's own
    configuration says.
    """

    def digest(self, root: Path, python: Path) -> str:
        """Changes with anything the environment is made from: locked files, interpreter, place."""
        return _digest(
            root, self.inputs, (self.name, str(python), str(root / self.folder), *self.extra)
        )

    def dev_digest(self, root: Path) -> str:
        """Changes with what tests and checks add."""
        return _digest(root, (self.dev,) if self.dev is not None else (), (self.name, "dev"))


UV = Recipe(name="uv", folder=".venvs/uv", inputs=("requirements/uv.txt",))
NODE = Recipe(name="cdk", folder="node_modules", inputs=("package.json", "package-lock.json"))
COMMAND = Recipe(
    name="roundhouse",
    folder=".venv",
    inputs=("requirements/roundhouse.txt",),
    dev="requirements/dev.txt",
)
RECIPES = (
    Recipe(
        name="builder",
        folder=".venvs/builder",
        inputs=("requirements/builder.txt",),
        extra=(TORCH,),
        dev="requirements/test.txt",
    ),
    COMMAND,
    NODE,
    Recipe(name="triton", folder=".venvs/triton", inputs=("requirements/triton.txt",)),
    Recipe(
        name="server",
        folder=".venvs/server",
        inputs=("requirements/server.txt",),
        dev="requirements/test.txt",
    ),
    Recipe(name="cloud", folder=".venvs/cloud", inputs=("requirements/cloud.txt",)),
)
"""Slowest first, so that they overlap best."""

PLATFORM = Recipe(name="platform", folder=".venvs/platform", inputs=("requirements/platform.txt",))
"""Made only when our platform data is compared with the SageMaker SDK's."""

BENCH = Recipe(name="bench", folder=".venvs/bench", inputs=("requirements/bench.txt",))
"""Made only when a benchmark measures our servers against others."""


def making(recipe: Recipe, root: Path, python: Path) -> tuple[Command, ...]:
    """The commands that make an environment in an empty place."""
    if recipe is NODE:
        return (_command(root, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),)
    folder = root / recipe.folder
    if recipe is UV:
        pip = (
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        )
        return (
            _command(root, str(python), "-m", "venv", str(folder)),
            _command(root, *pip, "--require-hashes", "-r", recipe.inputs[0]),
        )
    return (
        _command(
            root,
            str(_uv(root)),
            "venv",
            "--quiet",
            "--no-python-downloads",
            "--python",
            str(python),
            str(folder),
        ),
        _hashed(root, folder, recipe.inputs[0]),
        *(_apart(root, folder, requirement) for requirement in recipe.extra),
    )


def adding_dev(recipe: Recipe, root: Path) -> tuple[Command, ...]:
    """The commands that add what tests and checks need."""
    return () if recipe.dev is None else (_hashed(root, root / recipe.folder, recipe.dev),)


def locking(names: Sequence[str], root: Path) -> tuple[Command, ...]:
    """The commands that write requirements/<name>.txt from requirements/<name>.in."""
    compile_command = (
        str(_uv(root)), "pip", "compile", "--quiet", "--generate-hashes", "--upgrade",
        "--python-version", "3.11",
        "--excludes", "excludes.txt", "--custom-compile-command", "make lock",
    )  # fmt: skip
    return tuple(
        _command(root / "requirements", *compile_command, f"{name}.in", "-o", f"{name}.txt")
        for name in names
    )


def _hashed(root: Path, folder: Path, requirements: str) -> Command:
    python = str(folder / "bin" / "python")
    return _command(
        root,
        str(_uv(root)),
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--no-deps",
        "--require-hashes",
        "-r",
        requirements,
    )


def _apart(root: Path, folder: Path, requirement: str) -> Command:
    # Not uv: a CPU build of torch that lies on this machine is found through pip's own
    # configuration, which uv does not read.
    python = str(folder / "bin" / "python")
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile")
    return _command(root, python, "-m", "pip", "install", *options, requirement)


def _uv(root: Path) -> Path:
    return root / UV.folder / "bin" / "uv"


def _command(folder: Path, *argv: str) -> Command:
    return Command(argv=argv, folder=folder)


def _digest(root: Path, files: Sequence[str], words: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for file in files:
        digest.update((root / file).read_bytes())
    return digest.hexdigest()
