"""A checkpoint's JSON files, whole or of another kind than they must be."""

from __future__ import annotations

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.checkpoint import read_json


def test_a_file_that_is_not_there_is_the_default(tmp_path):
    assert read_json(tmp_path / "config.json", {}) == {}


@pytest.mark.parametrize("content", ["[1, 2]", '"text"', "null", "3"])
def test_refuses_a_configuration_that_is_no_object(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    words = r"config.json of the checkpoint holds \w+, not an object; fetch or save it again"
    with pytest.raises(SourceFault, match=words):
        read_json(tmp_path / "config.json", {})


@pytest.mark.parametrize("content", ["{", "", "[" * 100_000])
def test_refuses_a_file_that_is_no_json(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SourceFault, match=r"config.json of the checkpoint is no JSON"):
        read_json(tmp_path / "config.json", {})
