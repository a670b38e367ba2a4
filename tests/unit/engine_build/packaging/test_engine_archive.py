"""Published archives are read only as they were published."""

from __future__ import annotations

import errno

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.archive import read_engine_archive
from onboarding.manifest import MANIFEST_NAME
from tests.unit.engine_build.packaging.archives import ENGINE, publish_test_archive, replace_files

PLAN = f"{ENGINE}/1/model.plan"


@pytest.fixture
def one(tmp_path):
    return publish_test_archive(tmp_path, "8.6")


def assert_refused(archive, folder, words):
    with pytest.raises(InputRefused, match=words):
        read_engine_archive(archive, folder / "unpacked")


def test_same_files_and_facts_give_the_same_bytes_and_another_time_does_not(one, tmp_path):
    again = publish_test_archive(tmp_path / "again", "8.6")
    assert again.read_bytes() == one.read_bytes()
    later = publish_test_archive(tmp_path / "later", "8.6", load_seconds=2.0)
    assert later.read_bytes() != one.read_bytes()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({PLAN: b"other"}, "model.plan is not the file that its manifest names"),
        ({PLAN: b""}, "model.plan is in the manifest but not in its archive"),
        ({"more": b"more"}, "more is in the archive but not in its manifest"),
        ({MANIFEST_NAME: b""}, "has no manifest.json"),
        ({MANIFEST_NAME: b"{}"}, "is not the manifest of one engine"),
    ],
)
def test_refuses_an_archive_that_is_not_as_published(files, words, one, tmp_path):
    assert_refused(replace_files(one, tmp_path, **files), tmp_path, words)


def test_refuses_an_archive_that_is_cut_short(one, tmp_path):
    one.write_bytes(one.read_bytes()[:300])
    assert_refused(one, tmp_path, "cannot be unpacked")


def test_refuses_an_archive_that_does_not_exist(tmp_path):
    assert_refused(tmp_path / "none.tar.gz", tmp_path, "none.tar.gz is not there")


def test_refuses_a_folder_and_names_the_archive_in_it(one, tmp_path):
    words = f"{one.parent} is a folder; give the engine archive itself, such as {one}.$"
    assert_refused(one.parent, tmp_path, words)


def test_refuses_an_archive_that_may_not_be_read(one, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(one))

    monkeypatch.setattr("tarfile.open", refuse)
    assert_refused(one, tmp_path, "Permission denied; see to permissions and room there")


def test_refuses_an_archive_with_any_byte_after_its_header_changed(one, tmp_path):
    whole, header = one.read_bytes(), 10
    for index in range(header, len(whole), max(1, len(whole) // 40)):
        one.write_bytes(whole[:index] + bytes([whole[index] ^ 0xFF]) + whole[index + 1 :])
        assert_refused(one, tmp_path / str(index), "publish the engine again")
