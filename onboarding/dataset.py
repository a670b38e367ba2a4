"""Datasets for calibration and validation: files of texts or arrays, or folders of images."""

from __future__ import annotations

import hashlib
import io
import tokenize
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from onboarding.checkpoint import checkpoint_files, file_sums
from onboarding.onnx_header import OnnxHeader, read_onnx_header
from onboarding.shared_library import SharedLibrary, read_shared_library

FactsT = TypeVar("FactsT", OnnxHeader, SharedLibrary)

TEXTS, LABELLED, ARRAYS = ".txt", ".tsv", ".npz"
KINDS = (TEXTS, LABELLED, ARRAYS)
LABELS = "labels"
"""The array of an .npz file that is no network input."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One dataset. `problem` says why it cannot be used."""

    kind: str = TEXTS
    count: int = 0
    """Samples; blank lines are none."""
    texts: tuple[str, ...] = ()
    """Empty for arrays, which are not read here."""
    labels: tuple[str, ...] | None = None
    """None where there are none; of arrays, only whether there are some."""
    arrays: tuple[ArrayHeader, ...] = ()
    """Names, shapes and types; empty for texts."""
    digests: tuple[str, ...] = ()
    """Of each image; empty for others."""
    sha256: str | None = None
    problem: str | None = None
    way_out: str = ""


class Datasets:
    """Every dataset, ONNX header and library under one onboarding root, each read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[str, Dataset] = {}
        self._headers: dict[str, OnnxHeader | str] = {}
        self._libraries: dict[str, SharedLibrary | str] = {}

    def __getitem__(self, path: str) -> Dataset:
        if path not in self._read:
            self._read[path] = _dataset(self.root, path)
        return self._read[path]

    def onnx_header(self, path: str | None) -> OnnxHeader | str | None:
        """Return an ONNX file's header, or what is wrong with it; None where there is no file."""
        if path is None or "://" in path:
            return None
        return self._once(self._headers, path, read_onnx_header)

    def shared_library(self, path: str) -> SharedLibrary | str | None:
        """Return a library's facts, or what is wrong with it; None where there is no file."""
        return self._once(self._libraries, path, read_shared_library)

    def _once(
        self, known: dict[str, FactsT | str], path: str, read: Callable[[Path], FactsT]
    ) -> FactsT | str | None:
        if path not in known:
            if not is_inside(self.root, path) or not (self.root / path).is_file():
                return None
            try:
                known[path] = read(self.root / path)
            except ValueError as error:
                known[path] = str(error)
            except OSError as error:
                known[path] = f"cannot be read: {error.strerror}"
        return known[path]

    def digests(self) -> dict[str, str]:
        """Path to sha256 of the bytes of every dataset asked for so far that can be used."""
        return {
            path: dataset.sha256
            for path, dataset in self._read.items()
            if dataset.sha256 is not None
        }


def is_inside(root: Path, path: str) -> bool:
    """True when a relative path, links followed, stays under the root."""
    try:
        return not Path(path).is_absolute() and (root / path).resolve().is_relative_to(
            root.resolve()
        )
    except (OSError, ValueError, RuntimeError):
        return False


def _dataset(root: Path, path: str) -> Dataset:
    if not is_inside(root, path):
        return Dataset(
            problem="lies outside the onboarding root",
            way_out="name a file under it, such as models/data/sentences.txt",
        )
    if (root / path).is_dir():
        return _images(root / path)
    try:
        data = (root / path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Dataset(problem="does not exist", way_out="add the file, or correct the path")
    except OSError as error:
        return Dataset(problem=f"cannot be read: {error.strerror}", way_out="name a readable file")
    return _from_bytes(path, data)


def _from_bytes(path: str, data: bytes) -> Dataset:
    kind = PurePosixPath(path).suffix
    if kind not in KINDS:
        return Dataset(
            problem="has an unknown kind of file",
            way_out=f"name a file that ends in {', '.join(KINDS)}, or {FOLDER}",
        )
    if kind == ARRAYS:
        return _arrays(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return Dataset(problem="is not UTF-8 text", way_out="save it as UTF-8, one sample a line")
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        return Dataset(problem="is empty", way_out="write one sample a line")
    digest = hashlib.sha256(data).hexdigest()
    if kind == LABELLED:
        return _labelled(lines, digest)
    return Dataset(kind=kind, count=len(lines), texts=lines, sha256=digest)


def _images(folder: Path) -> Dataset:
    try:
        names = image_names(folder)
        sums = file_sums(folder, names)
    except (ValueError, OSError) as error:
        problem = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        return Dataset(problem=problem, way_out=f"name {FOLDER}, and nothing else in it")
    return Dataset(
        kind=FOLDER,
        count=len(names),
        digests=tuple(line.partition(" ")[0] for line in sums.splitlines()),
        labels=image_labels(names),
        sha256=hashlib.sha256(sums.encode()).hexdigest(),
    )


def _labelled(lines: tuple[str, ...], digest: str) -> Dataset:
    pairs = [line.partition("\t") for line in lines]
    for line, (_, tab, text) in zip(lines, pairs, strict=True):
        if not tab or not text.strip():
            return Dataset(
                problem=f"has a line without a label: {line[:40]!r}",
                way_out="write label, tab, text on every line; for text-ranking query, tab, text",
            )
    labels = tuple(label.strip() for label, _, _ in pairs)
    texts = tuple(text.strip() for _, _, text in pairs)
    return Dataset(kind=LABELLED, count=len(lines), texts=texts, labels=labels, sha256=digest)


def _arrays(data: bytes) -> Dataset:
    try:
        headers = array_headers(data)
    except ValueError as error:
        return Dataset(
            problem=str(error),
            way_out="save it with numpy.savez: an array per network input, one row per sample",
        )
    counts = {header.name: header.shape[0] if header.shape else 0 for header in headers}
    if not set(counts) - {LABELS} or 0 in counts.values():
        return Dataset(
            problem="is empty", way_out="save an array per network input, one row per sample"
        )
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{name} {count}" for name, count in counts.items())
        return Dataset(
            problem=f"has arrays of different lengths: {lengths}",
            way_out="give every array one row per sample",
        )
    return Dataset(
        kind=ARRAYS,
        count=next(iter(counts.values())),
        arrays=headers,
        labels=() if LABELS in counts else None,
        sha256=hashlib.sha256(data).hexdigest(),
    )


@dataclass(frozen=True, kw_only=True)
class ArrayHeader:
    """One array of the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def array_headers(data: bytes) -> tuple[ArrayHeader, ...]:
    """Every array of an .npz file. Raises ValueError with what is wrong."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return tuple(_header(archive, name) for name in archive.namelist())
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError) as error:
        raise ValueError("is no .npz file, or a damaged one") from error


def _header(archive: zipfile.ZipFile, file_name: str) -> ArrayHeader:
    from numpy.lib import format as npy

    name = file_name.removesuffix(".npy")
    with archive.open(file_name) as file:
        try:
            version = npy.read_magic(file)
        except ValueError as error:
            raise ValueError(f"holds {file_name!r}, which is no numpy array") from error
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        try:
            shape, _, dtype = read(file)
        except (ValueError, tokenize.TokenError) as error:
            raise ValueError(f"holds array {name!r} with a damaged header") from error
    if dtype.hasobject:
        raise ValueError(f"holds array {name!r} of Python objects, which are never unpickled")
    return ArrayHeader(name=name, shape=shape, dtype=dtype.str)


MEDIA_TYPES = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png"}
"""By the ending of a file's name."""
SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
LONGEST_SIGNATURE = max(map(len, SIGNATURES))
FOLDER = "a folder of .jpg and .png files"
"""A dataset of images in words; the subfolders that they lie in, if any, are their labels."""


def image_labels(names: Sequence[str]) -> tuple[str, ...] | None:
    """Return each image's label, the one subfolder that it lies in; None where some lie in none."""
    parents = [PurePosixPath(name).parent.parts for name in names]
    if not all(len(parts) == 1 for parts in parents):
        return None
    return tuple(parts[0] for parts in parents)


def image_names(folder: Path) -> tuple[str, ...]:
    """Return the images of a folder, as sorted relative paths; hidden files are none of it.

    Raises ValueError with what is wrong: another file, or none at all.
    """
    names = checkpoint_files(folder)
    for name in names:
        with (folder / name).open("rb") as file:
            is_image = file.read(LONGEST_SIGNATURE).startswith(SIGNATURES)
        if PurePosixPath(name).suffix.lower() not in MEDIA_TYPES or not is_image:
            raise ValueError(f"holds {name}, which is no JPEG or PNG file")
    if not names:
        raise ValueError("holds no file")
    return names


Kind = Literal["calibration", "search", "validation"]


def starter_texts(kind: Kind) -> str:
    """Return a dataset file's text, one sample a line.

    There are 256 to calibrate, 128 to search and 400 to validate.
    """
    folder = resources.files("onboarding.data").joinpath("texts")
    return folder.joinpath(f"{kind}.txt").read_text(encoding="utf-8")


def evaluation_path() -> Path:
    """Return the file of English paragraphs on which text generators are judged by default.

    They were written for it and stand nowhere else, so that no model has learnt them.
    """
    return Path(str(resources.files("onboarding.data").joinpath("texts", "evaluation.txt")))
