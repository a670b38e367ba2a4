"""Published archives are read only as they were published."""

from __future__ import annotations

import errno
import io
import tarfile

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.combine import combine_archives, main
from onboarding.manifest import (
    MANIFEST_NAME,
)
from tests.unit.engine_build.packaging.archives import (
    ENGINE,
    spoiled,
)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {f"{ENGINE}/1/model.plan": b"other"},
            "model.plan is not the file that its manifest names",
        ),
        ({f"{ENGINE}/1/model.plan": b""}, "model.plan is in the manifest but not in its archive"),
        ({"more": b"more"}, "more is in the archive but not in its manifest"),
        ({MANIFEST_NAME: b""}, "has no manifest.json"),
        ({MANIFEST_NAME: b"{}"}, "is not the manifest of one engine"),
    ],
)
def test_refuses_an_archive_that_is_not_as_published(files, words, two, tmp_path):
    with pytest.raises(InputRefused, match=words):
        combine_archives((two[0], spoiled(two[1], tmp_path, **files)), tmp_path / "out.tar.gz")


def test_refuses_an_archive_that_is_cut_short_or_not_there_or_of_several(two, tmp_path):
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(two[0].read_bytes()[:300])
    with pytest.raises(InputRefused, match="cannot be unpacked"):
        combine_archives((cut, two[1]), tmp_path / "out.tar.gz")
    failed = io.StringIO()
    assert (
        main(
            [str(two[0]), str(tmp_path / "none.tar.gz"), "--out", str(tmp_path / "x")],
            io.StringIO(),
            failed,
        )
        == 1
    )
    assert "none.tar.gz is not there" in failed.getvalue()
    combine_archives(two, tmp_path / "out.tar.gz")
    with pytest.raises(InputRefused, match="is not the manifest of one engine"):
        combine_archives((tmp_path / "out.tar.gz", two[0]), tmp_path / "x")


def test_refuses_a_folder_and_names_the_archive_in_it(two, tmp_path):
    failed = io.StringIO()
    assert (
        main(
            [str(two[0].parent), str(two[1]), "--out", str(tmp_path / "out.tar.gz")],
            io.StringIO(),
            failed,
        )
        == 1
    )
    assert (
        failed.getvalue()
        == f"FAILED: {two[0].parent} is a folder; give the engine archive itself, such as "
        f"{two[0]}.\n"
    )


def test_refuses_an_archive_that_may_not_be_read(two, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(two[0]))

    monkeypatch.setattr("tarfile.open", refuse)
    with pytest.raises(InputRefused, match="Permission denied; see to permissions and room there"):
        combine_archives(two, tmp_path / "out.tar.gz")


def test_refuses_an_archive_with_any_byte_after_its_header_changed(two, tmp_path):
    whole, header = two[0].read_bytes(), 10
    changed = tmp_path / "changed.tar.gz"
    for place in range(header, len(whole), max(1, len(whole) // 40)):
        changed.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(InputRefused, match="publish the engine again"):
            combine_archives((changed, two[1]), tmp_path / "out.tar.gz")


def test_refuses_an_archive_with_a_changed_file(two, tmp_path):
    with tarfile.open(two[0]) as tar:
        tar.extractall(tmp_path / "files", filter="data")
    plan = next((tmp_path / "files").rglob("*.plan"))
    plan.write_bytes(plan.read_bytes() + b"more")
    with tarfile.open(tmp_path / "changed.tar.gz", "w:gz") as tar:
        for path in sorted(path for path in (tmp_path / "files").rglob("*") if path.is_file()):
            tar.add(path, path.relative_to(tmp_path / "files"))
    with pytest.raises(InputRefused, match=r"model.plan is not the file that its manifest names"):
        combine_archives((tmp_path / "changed.tar.gz", two[1]), tmp_path / "out.tar.gz")
