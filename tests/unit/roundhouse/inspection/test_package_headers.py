"""Headers of packages come from a process of the quantizer's environment, or a sentence does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onboarding.text_generation.spec import GenerationSourceSpec
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.inspection.package_headers import package_headers
from roundhouse.processes import Outcome
from tests.unit.onboarding.text_generation.shapes import SMOLLM

SOURCE = GenerationSourceSpec(python_package="a==1", path="a", headers="models/data/a.json")


@pytest.fixture
def code(tmp_path):
    python = tmp_path / ".venvs" / "quantizer" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return tmp_path


def program(text: str | None, output: str = "", code: int = 0):
    def run(command, on_line=None):
        words = dict(zip(command.argv[3::2], command.argv[4::2], strict=True))
        assert json.loads(words["--source"]) == {
            "python_package": "a==1", "path": "a", "trust_remote_code": False,
        }  # fmt: skip
        if text is not None:
            Path(words["--out"]).write_text(text)
        return Outcome(code=code, output=output)

    return run


def test_headers_are_those_that_the_process_wrote(code):
    found = package_headers(SOURCE, code, {}, program(SMOLLM.document()))
    assert found == SMOLLM


def test_refuses_what_the_process_refuses(code):
    output = "$ pip download\nFAILED: package a==1 is not there; correct the version. (log: x)\n"
    with pytest.raises(RoundhouseError, match="a==1: package a==1 is not there"):
        package_headers(SOURCE, code, {}, program(None, output, 5))
    with pytest.raises(RoundhouseError, match="it said nothing"):
        package_headers(SOURCE, code, {}, program(None, "", 1))
    with pytest.raises(RoundhouseError, match="is no file of headers"):
        package_headers(SOURCE, code, {}, program("{}"))


def test_refuses_where_the_environment_is_not_made(tmp_path):
    with pytest.raises(NotReadyError, match="`make environments-chat` makes it"):
        package_headers(SOURCE, tmp_path, {}, program(""))
