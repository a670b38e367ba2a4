"""The environments of this repository: their locked files, and the commands that make them.

Standard library only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundhouse.processes import Command

TORCH_CPU, TORCH_CUDA = "torch-cpu", "torch-cuda"
"""The builds of torch: PyTorch's for CPUs, and PyPI's with NVIDIA's libraries."""
ANSWER_SECONDS, PROBE_SECONDS = 3, 10
STAMP = ".roundhouse-stamp"
DEV_STAMP = ".roundhouse-dev-stamp"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One environment: its folder, its locked files, and `dev`, what tests and checks add."""

    name: str
    folder: str
    inputs: tuple[str, ...]
    dev: str | None = None
    modules: tuple[str, ...] = ()
    """Imported once all is installed: what they load may be missing on a machine."""

    @property
    def has_torch(self) -> bool:
        """Return whether it takes one of the two builds of torch."""
        return "torch" in self.modules

    def digest(self, root: Path, python: Path, code: Path | None = None) -> str:
        """Return a digest of its locked files (below `code`), modules, interpreter and path."""
        torch = map(_lock, (TORCH_CPU, TORCH_CUDA)) if self.has_torch else ()
        words = (self.name, f"{python}", f"{root / self.folder}", *self.modules)
        return _digest(code or root, (*self.inputs, *torch), words)

    def dev_digest(self, root: Path) -> str:
        """Return a digest of what tests and checks add."""
        return _digest(root, () if self.dev is None else (self.dev,), (self.name, "dev"))


def _venv(name: str, *modules: str, dev: str | None = None) -> Recipe:
    inputs = (_lock(name),)
    return Recipe(name=name, folder=f".venvs/{name}", inputs=inputs, dev=dev, modules=modules)


def _lock(name: str) -> str:
    return f"requirements/{name}.txt"


TEST = "requirements/test.txt"
UV = _venv("uv")
NODE = Recipe(name="cdk", folder="node_modules", inputs=("package.json", "package-lock.json"))
COMMAND = Recipe(
    name="roundhouse",
    folder=".venv",
    inputs=("requirements/roundhouse.txt",),
    dev="requirements/dev.txt",
    modules=("aws_cdk", "boto3", "numpy", "pydantic", "uvloop"),
)
RECIPES = (
    _venv(
        "builder",
        *("onnx", "onnxruntime", "sentence_transformers", "tensorrt_rtx", "tokenizers", "torch"),
        dev=TEST,
    ),
    COMMAND,
    NODE,
    _venv("triton", "PIL", "onnxruntime", "pytriton", "tokenizers"),
    _venv("server", "PIL", "numpy", "onnxruntime", "tokenizers", "uvloop", dev=TEST),
    _venv("cloud", "ministack"),
)
"""Slowest first, so that they overlap best."""

LOCAL = tuple(recipe for recipe in RECIPES if recipe not in (COMMAND, NODE))
"""What the local cloud runs in; a team's repository has its own command, and its own cdk."""

PLATFORM = _venv("platform", "sagemaker.core")
"""Made only when our platform data is compared with the SageMaker SDK's."""

QUANTIZER = _venv("quantizer", "compressed_tensors", "gguf", "llmcompressor", "torch", dev=TEST)
"""Made only when a text generator's checkpoint is quantized or judged on this machine."""

VLLM = _venv("vllm", "torch", "vllm", "vllm.entrypoints.openai.api_server")
"""Made only when a text generator is served on this machine: vLLM on a CPU."""

OPTIONAL = {recipe.name: recipe for recipe in (PLATFORM, QUANTIZER, VLLM)}
"""Made only when they are named."""


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """A build of torch: the name of its lock, and the options by which uv finds its wheels."""

    name: str
    options: tuple[str, ...] = ()


CUDA_BUILD = TorchBuild(name=TORCH_CUDA)


def cpu_build(index: str | None) -> TorchBuild:
    """Return the build for CPUs, of an index that stands for PyTorch's own (None: PyTorch's)."""
    options = ("--torch-backend", "cpu") if index is None else ("--default-index", index)
    return TorchBuild(name=TORCH_CPU, options=options)


def probe_command(build: TorchBuild, root: Path, code: Path | None = None) -> Command:
    """Return the command that succeeds where a build can be had, and ends within seconds."""
    seconds = ("UV_HTTP_CONNECT_TIMEOUT", "UV_HTTP_TIMEOUT")
    patience = ("UV_HTTP_RETRIES=0", *(f"{name}={ANSWER_SECONDS}" for name in seconds))
    limited = ("timeout", f"{PROBE_SECONDS}", "env", *patience)
    lock = (code or root) / _lock(build.name)
    install = _install(root, root / UV.folder, lock, *build.options, "--dry-run")
    return _command(root, *limited, *install.argv)


def creation_commands(
    recipe: Recipe,
    root: Path,
    python: Path,
    torch: TorchBuild = CUDA_BUILD,
    code: Path | None = None,
) -> tuple[Command, ...]:
    """Return the commands that make an environment below `root` where none is.

    Its locked files lie below `code`; None: below `root`.
    """
    lock = (code or root) / recipe.inputs[0]
    if recipe is NODE:
        return (_command(root, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),)
    folder = root / recipe.folder
    if recipe is UV:
        return (
            _command(root, f"{python}", "-m", "venv", f"{folder}"),
            _command(
                root,
                *(_python(folder), "-m", "pip", "install", "--quiet"),
                *("--disable-pip-version-check", "--require-hashes", "-r", f"{lock}"),
            ),
        )
    venv = ("venv", "--quiet", "--no-python-downloads", "--python", f"{python}", f"{folder}")
    commands = (_command(root, _uv(root), *venv), _install(root, folder, lock))
    if not recipe.has_torch:
        return commands
    return (*commands, _install(root, folder, (code or root) / _lock(torch.name), *torch.options))


def import_command(recipe: Recipe, root: Path) -> Command:
    """Return the command that imports what an environment is made for."""
    program = f"import {', '.join(recipe.modules)}"
    return _command(root, _python(root / recipe.folder), "-c", program)


def dev_commands(recipe: Recipe, root: Path) -> tuple[Command, ...]:
    """Return the commands that add what tests and checks need."""
    if recipe.dev is None:
        return ()
    return (_install(root, root / recipe.folder, root / recipe.dev),)


def _install(root: Path, folder: Path, lock: Path, *options: str) -> Command:
    # Hard links of uv's cache: what several environments hold lies on the disk once.
    install = ("pip", "install", "--quiet", "--link-mode", "hardlink", "--no-deps")
    which = ("--python", _python(folder), "--require-hashes", "-r", f"{lock}")
    return _command(root, _uv(root), *install, *options, *which)


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
