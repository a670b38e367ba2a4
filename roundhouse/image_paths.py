"""Images that `roundhouse invoke --input` names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onboarding.dataset import FOLDER, MEDIA_TYPES, image_names
from onboarding.deployment import Target
from onboarding.values import IMAGES
from roundhouse.errors import UsageError


def require_images(target: Target, files: Sequence[Path] | None) -> None:
    """Raise UsageError for images of a model that takes none, or none of one that does."""
    name, takes_images = target.model.name, target.model.task == IMAGES
    if takes_images and files is None:
        raise UsageError(f"{name}: takes images; give --input PICTURE.jpg, or a folder of them.")
    if files is not None and not takes_images:
        raise UsageError(f"{name}: is of task {target.model.task}, and --input names images.")


def image_paths(file: Path | None, texts: Sequence[str]) -> list[Path] | None:
    """Return the images that --input names; None where it names texts. Raises UsageError."""
    if file is None or not (file.is_dir() or file.suffix.lower() in MEDIA_TYPES):
        return None
    if texts:
        raise UsageError("--input: an image model takes no texts; leave them out.")
    if not file.is_dir():
        if not file.is_file():
            raise UsageError(f"--input {file}: is no file; name a JPEG or PNG file.")
        return [file]
    try:
        return [file / name for name in image_names(file)]
    except (ValueError, OSError) as error:
        raise UsageError(f"--input {file}: {error}; name {FOLDER}.") from error
