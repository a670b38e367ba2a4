"""ONNX networks in ONNX Runtime's CUDA and TensorRT providers, run on the CPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from container.archive import EngineArchive
from container.server.engines.loading import cpu_engine, cuda_engine
from container.server.engines.onnxruntime_cuda import (
    OnnxRunner,
    check_rows,
    tensorrt_options,
)
from container.server.engines.shaping import Part
from container.server.engines.tokens import Tokens
from onboarding.manifest import RuntimeIdentity
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, EMBEDDER, HERE, write_archive


def both(root, tiny=EMBEDDER):
    archive = EngineArchive(root=root, manifest=write_archive(root, tiny))
    return cpu_engine(archive, slots=1, threads=1), cuda_engine(archive, device="cpu")


def texts(*lengths, seed=0, typed=False):
    chance = np.random.default_rng(seed)
    rows = [chance.integers(0, 20, length).astype(np.int32) for length in lengths]
    return [Tokens(ids, ids % 2 if typed else None) for ids in rows]


def run_rows(engine, rows):
    return engine.run(engine.prepare(rows), 0)


def test_texts_are_answered_as_on_the_cpu(tmp_path):
    plain, bound = both(tmp_path)
    bound.warm_up()
    for seed, lengths in enumerate(((1,), (8, 8, 8), (3, 17, 30), (32,) * 32, (9,) * 25)):
        rows = texts(*lengths, seed=seed, typed=seed % 2 == 1)
        (answer,), (wanted,) = run_rows(bound, rows), run_rows(plain, rows)
        assert answer.dtype == np.float32 and np.allclose(answer, wanted, atol=1e-6)


def test_tensors_of_any_length_are_answered_as_on_the_cpu(tmp_path):
    plain, bound = both(tmp_path, ARITHMETIC)
    bound.warm_up()
    for length in (1, 5, 2, 1):
        chance = np.random.default_rng(length)
        rows = [
            (chance.standard_normal((2, length)).astype(np.float32), np.array([gain]))
            for gain in (3, -1, 2)
        ]
        for answer, wanted in zip(run_rows(bound, rows), run_rows(plain, rows), strict=True):
            assert answer.dtype == wanted.dtype and np.array_equal(answer, wanted)


def test_each_bucket_is_a_graph_of_its_own():
    runner = OnnxRunner(HERE / "model.onnx", device="cpu")
    runner._records = True
    parts = [part(4), part(8)]
    runner.declare([part.shapes for part in parts], outputs=runner.outputs)
    for one in (*parts, *parts):
        runner.run(one, 0)
    options = [graph._options for graph in runner._graph_runners[0].values()]
    assert [option.get_run_config_entry("gpu_graph_id") for option in options] == ["1", "2"]


def test_network_that_cannot_be_recorded_runs_without_graphs_and_warns():
    options, warnings = [], []

    def session(path, _, providers):
        options.append(providers[0][1])
        if "enable_cuda_graph" in providers[0][1]:
            raise RuntimeError(
                "This session cannot use the graph capture feature: nodes have not been "
                "partitioned to CUDA"
            )
        return gpu_session(path)

    runner = OnnxRunner(HERE / "model.onnx", warn=warnings.append, open_session=session)
    assert not runner._records
    assert len(warnings) == 1 and "cannot be recorded as CUDA graphs" in warnings[0]
    assert options == [{"device_id": "0", "enable_cuda_graph": "1"}, {"device_id": "0"}]


def test_refuses_outputs_without_the_batch_first():
    with pytest.raises(ValueError, match=r"output y has shape \[3, 2\] for 2 rows"):
        check_rows({"x": (2, 9), "y": (3, 2)}, part(4))


def part(length, *, seed=0, **feed):
    ids = np.random.default_rng(seed).integers(0, 20, (2, length))
    whole = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": None} | feed
    return Part(rows=2, shapes=dict.fromkeys(whole, (2, length)), feed=whole)


def gpu_session(path, options=None, providers=None):
    real = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return SimpleNamespace(
        get_providers=lambda: ["CUDAExecutionProvider"],
        get_inputs=real.get_inputs,
        get_outputs=real.get_outputs,
    )


NETWORK = HERE / f"{EMBEDDER.network}.onnx"
NAMES = ("input_ids", "attention_mask")


def shapes(*sizes):
    return [dict.fromkeys(NAMES, size) for size in sizes]


@pytest.mark.parametrize(
    ("precision", "fp16", "int8"),
    [("fp32", "False", "False"), ("fp16", "True", "False"), ("int8", "True", "True")],
)
def test_providers_options_follow_from_the_manifest(tmp_path, precision, fp16, int8):
    manifest = write_archive(tmp_path, precision=precision)
    options = tensorrt_options(manifest, shapes((1, 8), (8, 8), (8, 16), (32, 32)))
    assert (options["trt_fp16_enable"], options["trt_int8_enable"]) == (fp16, int8)
    assert options["trt_profile_min_shapes"] == "input_ids:1x8,attention_mask:1x8"
    assert options["trt_profile_opt_shapes"] == "input_ids:8x16,attention_mask:8x16"
    assert options["trt_profile_max_shapes"] == "input_ids:32x32,attention_mask:32x32"
    assert options["trt_engine_cache_enable"] == "True"


class Session:
    """A session of the providers that it was given, or of fewer."""

    def __init__(self, providers, missing=()):
        self.requested = providers
        names = [item if isinstance(item, str) else item[0] for item in providers]
        self._providers = [name for name in names if name not in missing]

    def get_providers(self):
        return self._providers

    def get_inputs(self):
        return []

    get_outputs = get_inputs


def test_tensorrts_provider_comes_first_and_records_no_graphs():
    opened = []

    def open_session(path, options, providers):
        opened.append(Session(providers))
        return opened[0]

    OnnxRunner(NETWORK, tensorrt={"trt_fp16_enable": "True"}, open_session=open_session)
    assert [item[0] for item in opened[0].requested[:2]] == [
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
    ]
    assert opened[0].requested[0][1] == {"device_id": "0", "trt_fp16_enable": "True"}
    assert "enable_cuda_graph" not in opened[0].requested[1][1]


def test_refuses_a_session_that_fell_back_from_tensorrts_provider():
    missing = ("TensorrtExecutionProvider",)
    with pytest.raises(ValueError, match="TensorRT's libraries do not load"):
        OnnxRunner(
            NETWORK,
            tensorrt={},
            open_session=lambda path, options, providers: Session(providers, missing),
        )


def test_each_slot_has_a_session_of_its_own(tmp_path):
    cuda = RuntimeIdentity(name="onnxruntime-cuda", version="1.31.1")
    archive = EngineArchive(root=tmp_path, manifest=write_archive(tmp_path, runtime=cuda))
    one, two = (cuda_engine(archive, slots=slots, device="cpu") for slots in (1, 2))
    assert (one.slots, two.slots) == (1, 2)
    part = two._shaping.blank(two._shaping.buckets.sizes[0])
    (expected,) = one.run((part,), 0)
    for slot in range(2):
        np.testing.assert_allclose(two.run((part,), slot)[0], expected, atol=1e-6)
