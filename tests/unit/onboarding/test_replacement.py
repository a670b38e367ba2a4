"""Replacement of a text file: whole, or as it was."""

from __future__ import annotations

import pytest

from onboarding.replacement import replace_text


def test_a_file_is_written_whole_with_its_folder(tmp_path):
    path = tmp_path / "folder" / "file.yaml"
    replace_text(path, "a: é\n")
    replace_text(path, "b: 2\n")
    assert path.read_text(encoding="utf-8") == "b: 2\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in path.parent.iterdir()] == ["file.yaml"]


def test_refuses_text_that_is_not_utf_8_and_keeps_the_file(tmp_path):
    path = tmp_path / "file.yaml"
    replace_text(path, "a: 1\n")
    with pytest.raises(UnicodeEncodeError):
        replace_text(path, "a: \ud800\n")
    assert path.read_text(encoding="utf-8") == "a: 1\n"
    assert [file.name for file in tmp_path.iterdir()] == ["file.yaml"]


def test_line_endings_mode_and_link_stay(tmp_path):
    path, link = tmp_path / "file.yaml", tmp_path / "link.yaml"
    path.write_bytes(b"a: 1\r\n")
    path.chmod(0o600)
    link.symlink_to(path)
    replace_text(link, "a: 1\r\nb: 2\n")
    assert path.read_bytes() == b"a: 1\r\nb: 2\n" and link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
