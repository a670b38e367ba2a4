"""Builds on a full disk, in real processes."""

from __future__ import annotations

import pytest

from tests.compile_check.builds import run_build
from tests.unit.engine_build.tiny import model, write_tree

pytestmark = pytest.mark.compile_check

LIMITED = """
import resource, runpy, sys
most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
runpy.run_module("engine_build", run_name="__main__")
"""


@pytest.fixture
def trees(tmp_path):
    root = write_tree(tmp_path / "root", model("tiny", "fp8"))
    return root, tmp_path / "out", tmp_path / "store"


@pytest.mark.parametrize("most_bytes", [40, 600, 60_000, 100_000])
def test_refuses_a_full_disk_in_one_sentence_and_publishes_nothing(most_bytes, wheel, trees):
    # A limit on the size of files does to a build what a full disk does, without filling one. It
    # would cut the bytecode of the shared environment too.
    variables = {"PIP_FIND_LINKS": str(wheel.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = run_build(*trees, program=("-c", LIMITED, most_bytes), **variables)
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("FAILED: ") and "File too large" in last, ended.stderr
    assert "Traceback" not in ended.stderr and ended.returncode in (1, 5, 6)
    _, out, store = trees
    assert not list(store.glob("engines/**/*.json"))
    assert not list(out.glob("**/.part-*"))
