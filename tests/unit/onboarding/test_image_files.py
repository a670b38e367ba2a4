"""Folders of images: what they hold, and the labels that their subfolders are."""

from __future__ import annotations

import pytest

from onboarding.dataset import FOLDER, Datasets, image_labels, is_image

pytestmark = pytest.mark.unit
JPEG, PNG = b"\xff\xd8\xff one", b"\x89PNG\r\n\x1a\n two"


def write(root, **files):
    for name, data in files.items():
        path = root / "images" / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Datasets(root)["images"]


def test_folder_of_images_is_a_dataset_of_its_files(tmp_path):
    dataset = write(tmp_path, a_jpg=JPEG, b_png=PNG)
    assert (dataset.kind, dataset.count, dataset.labels, dataset.problem) == (FOLDER, 2, None, None)
    assert len(set(dataset.digests)) == 2 and dataset.sha256 is not None
    (tmp_path / "images/c.png").write_bytes(PNG)
    assert Datasets(tmp_path)["images"].sha256 != dataset.sha256


def test_subfolders_are_labels(tmp_path):
    dataset = write(tmp_path, cat__a_jpg=JPEG, dog__b_png=PNG)
    assert dataset.labels == ("cat", "dog")
    assert image_labels(("cat/a.jpg", "b.jpg")) is None


@pytest.mark.parametrize("files", [{}, {"a_gif": b"GIF89a"}, {"a_jpg": b"text"}])
def test_refuses_a_folder_of_anything_else(files, tmp_path):
    (tmp_path / "images").mkdir()
    dataset = write(tmp_path, **files)
    assert dataset.problem is not None and FOLDER in dataset.way_out


def test_image_is_known_by_how_it_begins():
    assert is_image(JPEG) and is_image(PNG) and not is_image(b"RIFF")
