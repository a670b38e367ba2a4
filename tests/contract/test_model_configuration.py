"""Triton's own protobuf reads every golden model configuration, and sees in it what was meant."""

from __future__ import annotations

import pytest

from engine_build.packaging.repository import configurations
from tests.contract.model_config import PROTOBUF, parse_configuration
from tests.unit.engine_build.golden_configurations import CASES, golden


@pytest.mark.parametrize("case", CASES)
def test_protobuf_reads_the_golden_file(case):
    engine, is_cpu = CASES[case]
    for text in configurations(engine, is_cpu=is_cpu).values():
        assert text in golden(case).read_text()
        config = parse_configuration(text)
        assert config.max_batch_size == engine.max_batch_size
        assert list(config.dynamic_batching.preferred_batch_size) in (
            [],
            list(engine.serving.dynamic_batching.preferred_batch_sizes),
        )


def test_protobuf_sees_profiles_graphs_and_warm_ups():
    engine = configurations(CASES["gpu-embedding-tuned"][0], is_cpu=False)
    config = parse_configuration(engine["embedder_engine/config.pbtxt"])
    (group,) = config.instance_group
    assert group.kind == PROTOBUF.ModelInstanceGroup.KIND_GPU
    assert (group.count, list(group.profile)) == (2, ["0", "1"])
    graphs = config.optimization.cuda
    sizes = [(spec.batch_size, *spec.input["input_ids"].dim) for spec in graphs.graph_spec]
    assert graphs.graphs and sizes == [(1, 32), (4, 32), (4, 128), (8, 128)]
    warm_ups = [
        (warm_up.batch_size, *warm_up.inputs["attention_mask"].dims)
        for warm_up in config.model_warmup
    ]
    assert warm_ups == [(1, 16), (8, 128), (32, 256), (1, 8), (1, 32), (4, 64)]
    ensemble = parse_configuration(engine["embedder/config.pbtxt"])
    assert ensemble.response_cache.enable and not config.response_cache.enable


def test_protobuf_sees_the_steps_of_an_ensemble():
    ensemble = configurations(CASES["gpu-embedding"][0], is_cpu=False)
    config = parse_configuration(ensemble["embedder/config.pbtxt"])
    before, engine = config.ensemble_scheduling.step
    assert (before.model_name, engine.model_name) == ("embedder_tokenizer", "embedder_engine")
    names = {name: name for name in ("input_ids", "attention_mask")}
    assert dict(before.output_map) == dict(engine.input_map) == names
    assert dict(engine.output_map) == {"sentence_embedding": "embedding"}
