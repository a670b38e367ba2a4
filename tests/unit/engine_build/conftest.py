"""What the tests of engine_build share: one tiny checkpoint, and one whole build of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_build.build import Result, build
from engine_build.store import FolderStore
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, write_checkpoint, write_tree, write_wheel


@dataclass(frozen=True, kw_only=True)
class Built:
    """A finished build."""

    root: Path
    store: Path
    result: Result


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def wheel(checkpoint, tmp_path_factory) -> Path:
    return write_wheel(checkpoint, tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def tiny_build(wheel, tmp_path_factory) -> Built:
    """The model `tiny`, precision auto, built and published to a folder."""
    folder = tmp_path_factory.mktemp("built")
    models = (model(), model("tiny-fp32", "fp32"), model("tiny-int8", "int8"))
    root, store = write_tree(folder / "root", *models), FolderStore(folder / "store")
    tools = context(root, folder / "out", store=store, runner=StandInRunner(wheel))
    with tools.work:
        result = build(tools)
    return Built(root=root, store=folder / "store", result=result)
