"""The build of an ensemble of two small networks on a CPU."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from engine_build.build import build
from engine_build.errors import BudgetMissed, InputRefused
from engine_build.pipeline import run_steps, steps_of
from engine_build.store import FolderStore
from onboarding.names import engine_archive_path, network_path
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, write_arrays, write_tree

WIDTH = 4


def network(root, name, taken, answered):
    path = root / f"networks/{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    weight = np.random.default_rng(len(name)).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    write_graph(
        path,
        [node("MatMul", f"{taken} w", "m"), node("Tanh", "m", answered)],
        [tensor(taken, "batch", WIDTH)],
        [tensor(answered, "batch", WIDTH)],
        w=weight,
    )
    return model(
        name,
        task="tensors",
        source={"onnx": f"networks/{name}.onnx", "sha256": sha256(path.read_bytes())},
        engine={"precision": "fp32", "optimization_profiles": [{"batch": [1, 2, 4]}]},
        accuracy={"dataset": f"models/data/{taken}.npz", "metric": "relative_error"},
    )


def sha256(content):
    return hashlib.sha256(content).hexdigest()


ENSEMBLE = {
    "name": "wired",
    "task": "ensemble",
    "steps": [{"model": "first"}, {"model": "second"}],
    "outputs": ["z"],
    "accuracy": {
        "dataset": "models/data/x.npz",
        "metric": "relative_error",
        "budget": {"mean": 0.99},
    },
    "endpoint": {"instance_type": "ml.c7i.large"},
}


@pytest.fixture(scope="module")
def store_of_models(tmp_path_factory):
    """A tree and a store with the engines of two models, and no ensemble."""
    root = tmp_path_factory.mktemp("ensemble")
    (root / "models").mkdir(exist_ok=True)
    for name in ("x", "y"):
        rows = np.random.default_rng(1).standard_normal((120, WIDTH)).astype(np.float32)
        write_arrays(root, f"models/data/{name}", **{name: rows})
    write_tree(
        root,
        network(root, "first", "x", "y"),
        network(root, "second", "y", "z"),
        ENSEMBLE,
    )
    store = FolderStore(root / "store")
    for name in ("first", "second"):
        run(root, store, name)
    return root, store


def run(root, store, name):
    tools = context(root, root / f"out-{name}", store=store, runner=StandInRunner(), model=name)
    with tools.work:
        return build(tools)


def test_archive_holds_the_models_and_is_verified_as_a_whole(store_of_models):
    root, store = store_of_models
    result = run(root, store, "wired")
    manifest = result.entry.manifest
    assert result.status == "built" and manifest.ensemble is not None
    assert set(manifest.ensemble.steps) == {"first", "second"}
    assert {"first/1/model.onnx", "second/1/model.onnx", "manifest-first.json"} <= set(
        manifest.files
    )
    (record,) = manifest.accuracy
    assert (record.verdict, record.samples, record.mean) == ("pass", 120, 1.0)
    assert manifest.max_batch_size == 4 and manifest.load_seconds > 0
    assert [item.batch for item in manifest.benchmark] == [1, 2, 4]
    assert run(root, store, "wired").status == "known"


def test_refuses_an_ensemble_whose_answers_are_not_its_float_networks(store_of_models):
    root, store = store_of_models
    wired = (root / "models/wired.yaml").read_text()
    (root / "models/other.yaml").write_text(wired.replace("name: wired", "name: other"))
    tools = context(root, root / "out-other", store=store, runner=StandInRunner(), model="other")
    key = next(step for step in tools.request.steps if step.model.name == "second").network_keys
    record = store.path(network_path(key["float"], "network.json"))
    good = record.read_bytes()
    network(root, "other", "y", "z")
    other = (root / "networks/other.onnx").read_bytes()
    store.path(network_path(key["float"], "other.onnx")).write_bytes(other)
    facts = json.loads(good)
    facts["files"]["model.onnx"] = {"name": "other.onnx", "sha256": sha256(other)}
    record.write_text(json.dumps(facts))
    try:
        with tools.work, pytest.raises(BudgetMissed, match=r"other: relative_error mean .*: fail"):
            build(tools)
    finally:
        record.write_bytes(good)


def test_refuses_an_ensemble_whose_model_is_not_built_or_changed(store_of_models, tmp_path):
    root, store = store_of_models
    out, none = tmp_path / "out", FolderStore(tmp_path / "none")
    tools = context(root, out, store=none, runner=StandInRunner(), model="wired")
    with tools.work, pytest.raises(InputRefused, match=r"engine \w+ of first is not in .*none"):
        build(tools)
    tools = context(root, out, store=store, runner=StandInRunner(), model="wired")
    path = store.path(engine_archive_path(tools.request.steps[0].engine_key))
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        with tools.work, pytest.raises(InputRefused, match="of first is not in"):
            run_steps(tools, steps_of(tools))
    finally:
        path.write_bytes(good)
