"""NVIDIA's real Python bindings of one TensorRT build, unpacked on this machine, and a child
process that imports them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "bindings"
STUBS = Path(__file__).with_name("stubs.c")
DESCRIBE = Path(__file__).with_name("describe.py")
LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")


class NotToBeHadError(Exception):
    """This machine cannot have the bindings; the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Bindings:
    """One build's bindings; its libraries are empty, so nothing can be built or run."""

    version: str
    folder: Path
    names: dict[str, frozenset[str]]
    """Names by dotted class.

    `tensorrt` and `cuda` are the modules, `tensorrt.ILogger.Severity` a class in a class.
    """

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Python, with the bindings and this repository on its path."""
        return _python(self.folder, *argv)

    def has(self, path: str) -> bool:
        """Whether `tensorrt.BuilderFlag.INT8` or the like exists."""
        owner, _, name = path.rpartition(".")
        return name in self.names.get(owner, ())

    def anywhere(self, name: str) -> bool:
        """Whether any module or class has the name."""
        return any(name in names for names in self.names.values())


def bindings(version: str) -> Bindings:
    """The bindings that requirements/bindings-<version>.txt pins. Raises NotToBeHadError."""
    pins = ROOT / "requirements" / f"bindings-{version}.txt"
    made_of = pins.read_bytes() + STUBS.read_bytes() + sys.version.encode()
    folder = CACHE / f"{version}-{hashlib.sha256(made_of).hexdigest()[:16]}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(dir=CACHE, prefix=".part-"))
        try:
            _fetch(pins, half)
            _compile(half, version.split(".")[0])
            half.rename(folder)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    told = _python(folder, str(DESCRIBE))
    assert told.returncode == 0, told.stderr
    said = json.loads(told.stdout)
    assert said["version"] == version
    return Bindings(
        version=version,
        folder=folder,
        names={path: frozenset(names) for path, names in said["names"].items()},
    )


def _fetch(pins: Path, folder: Path) -> None:
    wheels = folder / "wheels"
    options = (
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--quiet",
        "--disable-pip-version-check",
    )
    command = (
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        "-r",
        str(pins),
        "-d",
        str(wheels),
    )
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise NotToBeHadError(
            f"the wheels of {pins.name} cannot be had: "
            f"{(ended.stderr.strip().splitlines() or ['?'])[-1]}"
        )
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "python")
    shutil.rmtree(wheels)


def _compile(folder: Path, major: str) -> None:
    if shutil.which("gcc") is None:
        raise NotToBeHadError(
            "gcc is not on this machine, and the bindings need three empty libraries"
        )
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
    return subprocess.run(
        (sys.executable, "-B", "-W", "error", *argv),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
