"""The zip of a build's sources."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import zipfile
from types import SimpleNamespace

import pytest

from onboarding.tree import read_tree
from roundhouse.deploy.builds.source import (
    named_files,
    require_committed_sources,
    source_path,
    source_revision,
    source_zip,
)
from roundhouse.errors import RoundhouseError
from roundhouse.paths import Paths
from roundhouse.processes import Outcome, Processes
from roundhouse.promoted_tree import model_files
from tests.shared_libraries import FIXTURE
from tests.unit.onboarding.trees import tree_root


@pytest.fixture
def code(tmp_path):
    files = {
        "onboarding/a.py": "a", "engine_build/b.py": "b", "container/triton/c.py": "c",
        "stacks/no.py": "no",
        "models/m.yaml": "m",
        "models/m.lock.yaml": "lock", "models/data/s.txt": "s", "environments/e.yaml": "e",
        "data/x.txt": "x",
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
        "container/triton/c.py", "engine_build/b.py", "environments/e.yaml",
        "models/data/s.txt", "models/m.yaml", "onboarding/a.py",
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


def test_code_of_a_model_comes_wherever_it_lies(tmp_path):
    (tmp_path / "own.py").write_text("def postprocess(outputs):\n    return outputs\n")
    digest = hashlib.sha256((tmp_path / "own.py").read_bytes()).hexdigest()
    code = f"max_batch_size: 8\n  postprocessing: {{file: own.py, sha256: {digest}}}"
    root = tree_root(tmp_path / "root", {"models/example.yaml": {"max_batch_size: 8": code}})
    shutil.copy(tmp_path / "own.py", root)
    tree = read_tree(root)
    assert tree.faults == () and "own.py" in named_files(tree)
    assert "own.py" in _names(source_zip(tmp_path, root, named_files(tree)))


def test_plugins_come_wherever_they_lie_and_are_promoted_with_their_model(tmp_path):
    digest = hashlib.sha256(FIXTURE.read_bytes()).hexdigest()
    plugins = f"plugins: [{{file: own/libscale.so, sha256: {digest}, operators: [Scale]}}]"
    changes = {
        "models/example.yaml": {"  precision: auto": f"  precision: auto\n  {plugins}"},
        "own/libscale.so": FIXTURE.read_bytes(),
    }
    tree = read_tree(tree_root(tmp_path, changes))
    assert "own/libscale.so" in named_files(tree)
    assert "own/libscale.so" in _names(source_zip(tmp_path, tree.root, named_files(tree)))
    assert "own/libscale.so" in model_files(tree, "example")


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


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def session_in_git(tmp_path, status="", is_local=False):
    """A session whose files git describes by `status`, as `git status --porcelain` prints it."""

    def run(command, on_line=None):
        return Outcome(code=0, output=f"{COMMIT}\n" if "rev-parse" in command.argv else status)

    paths = Paths(code=tmp_path, tree=tmp_path, build=tmp_path / "build")
    return SimpleNamespace(paths=paths, run=run, variables={}, is_local=is_local)


def test_the_revision_of_committed_files_is_the_commit(tmp_path):
    status = " M models/a.lock.yaml\n?? models/b.lock.yaml\n"
    session = session_in_git(tmp_path, status)
    assert source_revision(session, "bucket/sources/ab.zip", allow_dirty=False) == COMMIT


@pytest.mark.parametrize(("is_local", "allow_dirty"), [(True, False), (False, True)])
def test_the_revision_of_other_files_is_dirty_and_names_their_digest(
    tmp_path, is_local, allow_dirty
):
    session = session_in_git(tmp_path, "?? models/new.yaml\n", is_local)
    found = source_revision(session, "bucket/sources/abcdef0123456789.zip", allow_dirty=allow_dirty)
    assert found == f"{COMMIT}-dirty-abcdef012345"


def test_refuses_uncommitted_sources_for_aws(tmp_path):
    status = " M engine_build/a.py\n?? models/b.yaml\n"
    with pytest.raises(RoundhouseError, match=r"engine_build/a.py, models/b.yaml.*--allow-dirty"):
        require_committed_sources(session_in_git(tmp_path, status), allow_dirty=False)


def test_git_itself_sees_what_is_not_committed(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.yaml").write_text("a")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "a")):
        subprocess.run((*git, *words), cwd=tmp_path, check=True)
    session = replace_run(session_in_git(tmp_path), Processes())
    assert not require_committed_sources(session, allow_dirty=False)[1]
    (tmp_path / "models" / "a.yaml").write_text("b")
    with pytest.raises(RoundhouseError, match=r"models/a.yaml of the build's sources differ"):
        require_committed_sources(session, allow_dirty=False)


def replace_run(session, run):
    return SimpleNamespace(**{**vars(session), "run": run, "variables": dict(os.environ)})
