"""The environments of this repository: their locked files, and the commands that make them.

Standard library only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundhouse.processes import Command

TORCH = "torch==2.13.0"
EXCLUDES, OF_GPUS = ("--excludes", "excludes.txt"), "-gpu"
STAMP = ".roundhouse-stamp"
DEV_STAMP = ".roundhouse-dev-stamp"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One environment: its folder, its locked files, and `dev`, what tests and checks add."""

    name: str
    folder: str
    inputs: tuple[str, ...]
    dev: str | None = None
    extra: tuple[str, ...] = ()
    """Pinned requirements that plain pip installs, without dependencies."""

    def digest(self, root: Path, python: Path) -> str:
        """Return a digest of its locked files, interpreter and path."""
        folder = root / self.folder
        return _digest(root, self.inputs, (self.name, f"{python}", f"{folder}", *self.extra))

    def dev_digest(self, root: Path) -> str:
        """Return a digest of what tests and checks add."""
        return _digest(root, () if self.dev is None else (self.dev,), (self.name, "dev"))


def _venv(name: str, *, dev: str | None = None, extra: tuple[str, ...] = ()) -> Recipe:
    inputs = (f"requirements/{name}.txt",)
    return Recipe(name=name, folder=f".venvs/{name}", inputs=inputs, dev=dev, extra=extra)


UV = _venv("uv")
NODE = Recipe(name="cdk", folder="node_modules", inputs=("package.json", "package-lock.json"))
COMMAND = Recipe(
    name="roundhouse",
    folder=".venv",
    inputs=("requirements/roundhouse.txt",),
    dev="requirements/dev.txt",
)
RECIPES = (
    _venv("builder", dev="requirements/test.txt", extra=(TORCH,)),
    COMMAND,
    NODE,
    _venv("triton"),
    _venv("server", dev="requirements/test.txt"),
    _venv("cloud"),
)
"""Slowest first, so that they overlap best."""

PLATFORM = _venv("platform")
"""Made only when our platform data is compared with the SageMaker SDK's."""

BENCH = _venv("bench")
"""Made only when a benchmark measures our servers against others."""

QUANTIZER = _venv("quantizer", dev="requirements/test.txt", extra=(TORCH,))
"""Made only when a text generator's checkpoint is quantized or judged on this machine."""

VLLM = _venv("vllm", extra=(TORCH,))
"""Made only when a text generator is served on this machine: vLLM on a CPU."""

OPTIONAL = {recipe.name: recipe for recipe in (PLATFORM, BENCH, QUANTIZER, VLLM)}
"""Made only when they are named."""


def creation_commands(recipe: Recipe, root: Path, python: Path) -> tuple[Command, ...]:
    """Return the commands that make an environment where none is."""
    if recipe is NODE:
        return (_command(root, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),)
    folder = root / recipe.folder
    if recipe is UV:
        return (
            _command(root, f"{python}", "-m", "venv", f"{folder}"),
            _pip(root, folder, "--require-hashes", "-r", recipe.inputs[0]),
        )
    venv = ("venv", "--quiet", "--no-python-downloads", "--python", f"{python}", f"{folder}")
    # Not uv: a CPU build of torch that lies on this machine is found through pip's own
    # configuration, which uv does not read.
    options = ("--no-deps", "--no-compile")
    return (
        _command(root, _uv(root), *venv),
        _hashed(root, folder, recipe.inputs[0]),
        *(_pip(root, folder, *options, requirement) for requirement in recipe.extra),
    )


def dev_commands(recipe: Recipe, root: Path) -> tuple[Command, ...]:
    """Return the commands that add what tests and checks need."""
    return () if recipe.dev is None else (_hashed(root, root / recipe.folder, recipe.dev),)


def lock_commands(names: Sequence[str], root: Path) -> tuple[Command, ...]:
    """Return the commands that write requirements/<name>.txt from requirements/<name>.in.

    Those of GPUs have torch, whose build for them every index has with the same digest.
    """
    options = ("--quiet", "--generate-hashes", "--upgrade", "--python-version", "3.11")
    compile_command = (_uv(root), "pip", "compile", *options)
    excludes = {name: () if name.endswith(OF_GPUS) else EXCLUDES for name in names}
    origin = ("--custom-compile-command", "make lock")
    return tuple(
        _command(
            root / "requirements",
            *(*compile_command, *excludes[name], *origin, f"{name}.in", "-o", f"{name}.txt"),
        )
        for name in names
    )


def _hashed(root: Path, folder: Path, requirements: str) -> Command:
    install = ("pip", "install", "--quiet", "--python", _python(folder), "--no-deps")
    return _command(root, _uv(root), *install, "--require-hashes", "-r", requirements)


def _pip(root: Path, folder: Path, *words: str) -> Command:
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    return _command(root, _python(folder), *install, *words)


def _python(folder: Path) -> str:
    return str(folder / "bin" / "python")


def _uv(root: Path) -> str:
    return str(root / UV.folder / "bin" / "uv")


def _command(folder: Path, *argv: str) -> Command:
    return Command(argv=argv, folder=folder)


def _digest(root: Path, files: Sequence[str], words: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for file in files:
        digest.update((root / file).read_bytes())
    return digest.hexdigest()
