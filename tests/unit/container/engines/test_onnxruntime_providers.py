"""ONNX Runtime's TensorRT provider by its options, and several sessions of one network."""

from __future__ import annotations

import numpy as np
import pytest

from container.archive import EngineArchive
from container.server.engines.loading import cuda_engine
from container.server.engines.onnxruntime_cuda import (
    OnnxRunner,
    SeveralRunners,
    tensorrt_options,
)
from onboarding.manifest import RuntimeIdentity
from tests.fixtures.tiny_embedder.archive import EMBEDDER, HERE, write_archive

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


def test_several_runners_close_every_session():
    runners = [OnnxRunner(NETWORK, device="cpu") for _ in range(2)]
    SeveralRunners(runners).close()
    assert not any(hasattr(runner, "_session") for runner in runners)
