"""A checkpoint's JSON files, whole or of another kind than they must be."""

from __future__ import annotations

import json

import pytest

from engine_build.errors import SourceFault
from engine_build.sources.checkpoint import (
    class_names,
    configuration,
    read_json,
    refuse_other_poolings,
)


def test_a_file_that_is_not_there_is_the_default(tmp_path):
    assert configuration(tmp_path) == {}
    refuse_other_poolings(tmp_path)


@pytest.mark.parametrize("content", ["[1, 2]", '"text"', "null", "3"])
def test_refuses_a_configuration_that_is_no_object(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(
        SourceFault,
        match=r"config.json of the checkpoint holds \w+, not an object; fetch or save it again",
    ):
        class_names(configuration(tmp_path))


@pytest.mark.parametrize("content", ["{", "", "[" * 100_000])
def test_refuses_a_file_that_is_no_json(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SourceFault, match=r"config.json of the checkpoint is no JSON"):
        configuration(tmp_path)


@pytest.mark.parametrize("content", [[1], [{}], [None]])
def test_refuses_modules_without_a_type(content, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps(content))
    with pytest.raises(
        SourceFault, match=r"modules.json of the checkpoint has a module without a type"
    ):
        refuse_other_poolings(tmp_path)


def test_refuses_modules_that_are_no_list(tmp_path):
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(SourceFault, match="holds dict, not a list"):
        read_json(tmp_path / "modules.json", [])
