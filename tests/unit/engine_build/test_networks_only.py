"""Networks without an engine: made where there is no GPU, found by every GPU's builder."""

from __future__ import annotations

from engine_build.build import build, build_networks
from engine_build.store import FolderStore
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import write_tree


def test_networks_are_published_and_no_engine(wheel, tmp_path):
    tools = context(
        write_tree(tmp_path / "root"),
        tmp_path / "out",
        store=FolderStore(tmp_path / "store"),
        runner=StandInRunner(wheel),
    )
    with tools.work:
        made = build_networks(tools)
    assert set(made.keys) == {"float", "int8"}
    records = {path.parent.name for path in (tmp_path / "store").glob("networks/*/network.json")}
    assert records == set(made.keys.values())
    assert not (tmp_path / "store/engines").exists()


def test_engine_is_built_from_networks_of_another_machine(wheel, tmp_path):
    root, store = write_tree(tmp_path / "root"), FolderStore(tmp_path / "store")
    first = context(root, tmp_path / "first", store=store, runner=StandInRunner(wheel))
    with first.work:
        build_networks(first)
    without_source = StandInRunner(None)
    second = context(root, tmp_path / "second", store=store, runner=without_source)
    with second.work:
        assert build(second).status == "built"
    assert without_source.ran("pip") == 0 and without_source.ran("engine_build.onnx_graph.rtx") == 0
