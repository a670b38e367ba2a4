"""The folder that one build holds, and what a killed one left in it."""

from __future__ import annotations

import pytest

from engine_build.errors import InputRefused
from engine_build.work_folder import WorkFolder


def test_what_a_killed_build_was_writing_goes_and_what_it_finished_stays(tmp_path):
    kept = [tmp_path / "engines/0123/model.tar.gz", tmp_path / ".part-time.txt"]
    half = [tmp_path / "engines/0123/.part-ab12", tmp_path / "scratch/networks/model.onnx"]
    for path in (*kept, *half):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    with WorkFolder(tmp_path):
        assert [path.is_file() for path in (*kept, *half)] == [True, True, False, False]


def test_refuses_a_folder_that_another_build_holds_and_leaves_its_files(tmp_path):
    half = tmp_path / "networks/0123/.part-ab12"
    with WorkFolder(tmp_path):
        half.parent.mkdir(parents=True)
        half.write_bytes(b"under way")
        with pytest.raises(InputRefused, match="is in use by another build"), WorkFolder(tmp_path):
            pass
        assert half.is_file()


def test_a_candidate_takes_over_nothing_of_an_earlier_build(tmp_path):
    with WorkFolder(tmp_path):
        left = tmp_path / "networks/0123/model.onnx"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"of another tree")
    with WorkFolder(tmp_path, is_fresh=True):
        assert [path.name for path in tmp_path.iterdir()] == ["build.log"]


def test_refuses_to_build_a_candidate_among_files_of_no_build(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    refused = pytest.raises(InputRefused, match=r"holds mine\.txt and no log of a build")
    with refused, WorkFolder(tmp_path, is_fresh=True):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"
    with WorkFolder(tmp_path):
        pass
