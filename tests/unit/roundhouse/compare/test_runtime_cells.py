"""The axis of runtimes on the shipped tree: what check takes, and what it refuses."""

from __future__ import annotations

from onboarding.tree import read_tree
from roundhouse.compare.cells import cells
from roundhouse.compare.tree import subject, write_tree
from roundhouse.paths import current_paths


def test_runtimes_of_a_cpu_are_models_that_check_takes(tmp_path):
    """PyTorch has no INT8, which is a row with its reason."""
    paths = current_paths(None)
    found = subject(read_tree(paths.tree), "local", "sentence-embedder")
    axes = {
        "runtime": ["onnxruntime", "pytorch", "pytorch-compile"],
        "precision": ["fp32", "int8"],
        "instances": ["1", "2"],
    }
    grid = cells(axes, found.candidate)
    _, refused = write_tree(paths, tmp_path, found, grid, 100.0)
    expected = {f"{name}-int8-x{n}" for name in ("pytorch", "pytorch-compile") for n in (1, 2)}
    assert {cell.name for cell in grid} > expected == set(refused)
    assert "int8 is not for 'serving.runtime' pytorch" in refused["pytorch-int8-x1"]
