"""The pure functions behind the stacks."""

from __future__ import annotations

import pytest

from stacks.image_contents import IMAGE_CONTENTS
from stacks.images import image_tag, image_tags, read_image_files
from stacks.template import content_name

pytestmark = pytest.mark.unit


def test_content_name_follows_content_and_not_order():
    assert content_name("dev-a", {"x": 1, "y": [2]}) == content_name("dev-a", {"y": [2], "x": 1})
    assert content_name("dev-a", {"x": 1}) != content_name("dev-a", {"x": 2})


def test_content_name_is_trimmed_to_what_sagemaker_allows():
    name = content_name("dev-" + "a" * 45 + "-bcdefghijklmnop", {})
    assert len(name) <= 63 and "--" not in name


def test_image_tag_follows_paths_bytes_and_base():
    tag = image_tag({"a": b"1", "b": b"2"}, "base:1")
    assert tag == image_tag({"b": b"2", "a": b"1"}, "base:1")
    swapped = image_tag({"a": b"2", "b": b"1"}, "base:1")
    rebased = image_tag({"a": b"1", "b": b"2"}, "base:2")
    assert len({tag, swapped, rebased, image_tag({"a": b"1"}, "base:1")}) == 4


def test_base_image_matters_only_to_images_made_from_it():
    files = {image: {"f": b""} for image in IMAGE_CONTENTS}
    before, after = image_tags(files, "base:1"), image_tags(files, "base:2")
    assert {image for image in before if before[image] != after[image]} == {
        "triton",
        "python-server-gpu",
        "python-server-gpu-baseline",
        "builder-gpu",
    }


def test_image_files_are_sources_and_locked_requirements(tmp_path):
    for name in (
        "container/server/a.py",
        "container/server/__pycache__/a.pyc",
        "requirements/server.txt",
        "stacks/b.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    assert set(read_image_files(tmp_path)["python-server"]) == {
        "container/server/a.py",
        "requirements/server.txt",
    }
