"""NVIDIA's real Python bindings of one TensorRT build, unpacked, and a child that imports them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "bindings"
STUBS = Path(__file__).with_name("stubs.c")
LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")
MISSING = """
import functools, sys
import tensorrt_bindings as tensorrt
from cuda.bindings import runtime as cuda
print(tensorrt.__version__)
for path in sys.argv[1:]:
    module, *names = path.split(".")
    found = functools.reduce(lambda owner, name: getattr(owner, name, None), names, vars()[module])
    if found is None:
        print(path)
"""


class UnavailableError(Exception):
    """This machine cannot have the bindings; the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Bindings:
    """One build's bindings; its libraries are empty, so nothing can be built or run."""

    version: str
    folder: Path

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Python, with the bindings and this repository on its path."""
        return _python(self.folder, *argv)

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Paths such as `tensorrt.BuilderFlag.INT8` or `cuda.cudaMalloc` that do not exist."""
        ended = self.run("-c", MISSING, *paths)
        assert ended.returncode == 0, ended.stderr
        version, *missing = ended.stdout.split()
        assert version == self.version
        return missing


def bindings(version: str) -> Bindings:
    """The bindings that requirements/bindings-<version>.txt pins. Raises UnavailableError."""
    pins = ROOT / "requirements" / f"bindings-{version}.txt"
    content = pins.read_bytes() + STUBS.read_bytes() + sys.version.encode()
    folder = CACHE / f"{version}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=CACHE, prefix=".part-"))
        try:
            fetch(pins, part)
            _compile(part, version.split(".")[0])
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return Bindings(version=version, folder=folder)


def fetch(pins: Path, folder: Path) -> None:
    """Unpack the wheels that a file pins. Raises UnavailableError."""
    wheels = folder / "wheels"
    options = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--quiet")
    files = ("-r", str(pins), "-d", str(wheels))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    ended = _run((*pip, "download", *options, *files))
    if ended.returncode != 0:
        reason = (ended.stderr.strip().splitlines() or ["?"])[-1]
        raise UnavailableError(f"the wheels of {pins.name} cannot be had: {reason}")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "python")
    shutil.rmtree(wheels)


def _compile(folder: Path, major: str) -> None:
    if shutil.which("gcc") is None:
        raise UnavailableError("there is no gcc, and the bindings need three empty libraries")
    (folder / "lib").mkdir()
    for name in LIBRARIES:
        library = folder / "lib" / f"lib{name}.so.{major}"
        subprocess.run(("gcc", "-shared", "-fPIC", "-o", str(library), str(STUBS)), check=True)


def _python(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join((str(folder / "python"), str(ROOT))),
        "LD_LIBRARY_PATH": str(folder / "lib"),
    }
    return _run((sys.executable, "-B", "-W", "error", *argv), env=environment, cwd=ROOT)


def _run(command, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
