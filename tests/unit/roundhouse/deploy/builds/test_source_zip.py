"""The zip of a build's sources."""

from __future__ import annotations

import io
import os
import zipfile

import pytest

from roundhouse.deploy.builds.source_zip import folder_digest, source_path, source_zip


@pytest.fixture
def code(tmp_path):
    files = {
        "onboarding/a.py": "a", "engine_build/b.py": "b", "container/triton/c.py": "c", "stacks/no.py": "no",
        "models/m.yaml": "m",
        "models/m.lock.yaml": "lock", "models/data/s.txt": "s", "environments/e.yaml": "e", "data/x.txt": "x",
        "onboarding/__pycache__/a.pyc": "junk",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def _names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_the_zip_holds_what_a_build_needs_and_no_lock(code):
    assert _names(source_zip(code, code)) == [
        "container/triton/c.py", "engine_build/b.py", "environments/e.yaml", "models/data/s.txt", "models/m.yaml",
        "onboarding/a.py",
    ]  # fmt: skip


def test_the_same_files_give_the_same_bytes_at_any_time(code):
    first = source_zip(code, code)
    for path in code.rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert source_zip(code, code) == first


def test_another_byte_gives_another_path(code):
    first = source_path(source_zip(code, code))
    (code / "models" / "m.yaml").write_text("other")
    assert source_path(source_zip(code, code)) != first
    assert first.startswith("sources/") and first.endswith(".zip")


def test_files_outside_the_folders_come_when_named(code):
    assert "data/x.txt" in _names(source_zip(code, code, ["data/x.txt", "data/absent.txt"]))


def test_the_tree_may_lie_elsewhere(code, tmp_path):
    tree = tmp_path / "elsewhere"
    (tree / "models").mkdir(parents=True)
    (tree / "models" / "other.yaml").write_text("o")
    names = _names(source_zip(code, tree))
    assert (
        "models/other.yaml" in names
        and "models/m.yaml" not in names
        and "engine_build/b.py" in names
    )


def test_a_folder_digest_sees_locks(code):
    before = folder_digest(code, ("models",))
    (code / "models" / "m.lock.yaml").write_text("changed")
    assert folder_digest(code, ("models",)) != before
