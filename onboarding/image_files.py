"""JPEG and PNG files: how they are told, and the folders of them that are datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from onboarding.checkpoint import checkpoint_files

MEDIA_TYPES = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png"}
"""By the ending of a file's name."""
SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
LONGEST_SIGNATURE = max(map(len, SIGNATURES))
FOLDER = "a folder of .jpg and .png files"
"""A dataset of images in words; the subfolders that they lie in, if any, are their labels."""


def is_image(begin: bytes) -> bool:
    """Return whether a file that begins so is a JPEG or a PNG."""
    return begin.startswith(SIGNATURES)


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
            begin = file.read(LONGEST_SIGNATURE)
        if PurePosixPath(name).suffix.lower() not in MEDIA_TYPES or not is_image(begin):
            raise ValueError(f"holds {name}, which is no JPEG or PNG file")
    if not names:
        raise ValueError("holds no file")
    return names
