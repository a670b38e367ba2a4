"""Which archives may not share one."""

from __future__ import annotations

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.combine import combine_archives
from onboarding.manifest import (
    ProfileRecord,
    RuntimeIdentity,
)
from onboarding.model_spec import DynamicBatchingSpec, ServingSpec
from tests.unit.engine_build import golden_configurations as golden
from tests.unit.engine_build.packaging.archives import (
    published,
)

OTHER_BATCHING = ServingSpec(
    dynamic_batching=DynamicBatchingSpec(preferred_batch_sizes=(8,), max_queue_delay_us=50)
)
TWICE = (ProfileRecord(batch=(1, 8, 64), sequence=(16, 128, 256)),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"platform": "triton-25.04"},
            "disagree on the serving platform: triton-26.05 and triton-25.04",
        ),
        (
            {"runtime": RuntimeIdentity(name="tensorrt", version="10.9.0.34")},
            "disagree on the TensorRT build: .*10.16.1.11.*10.9.0.34",
        ),
        ({"model": "other"}, "disagree on the model: embedder and other"),
        ({"auto_truncate": False}, "disagree on whether long texts are cut: True and False"),
        ({"network_keys": {"float": "2"}}, "disagree on the network"),
        ({"tokenizer": b"[]"}, "tokenizer.json differs between .*: another tokenizer"),
        ({"optimization_profiles": TWICE}, "disagree on the optimization profiles"),
        ({"max_batch_size": 16}, "disagree on the largest batch: 32 and 16"),
        (
            {"shown": golden.served(serving=OTHER_BATCHING)},
            r"config.pbtxt differs between .*: other dynamic batching",
        ),
        ({"shown": golden.served(**golden.CLASSIFIER)}, "disagree on the model"),
    ],
)
def test_refuses_to_mix(changes, words, tmp_path):
    first = published(tmp_path, "8.6")
    with pytest.raises(InputRefused, match=words):
        combine_archives((first, published(tmp_path, "8.9", **changes)), tmp_path / "out.tar.gz")
    assert not (tmp_path / "out.tar.gz").exists()


def test_refuses_one_archive_two_of_one_capability_and_a_cpu_engine(two, tmp_path):
    with pytest.raises(InputRefused, match="1 archive is given; give two or more"):
        combine_archives(two[:1], tmp_path / "out.tar.gz")
    with pytest.raises(InputRefused, match=r"are both for compute capability 8\.9"):
        combine_archives((two[0], published(tmp_path / "again", "8.9")), tmp_path / "out.tar.gz")
    cpu_archive = published(
        tmp_path, "cpu", is_cpu=True, runtime=RuntimeIdentity(name="onnxruntime", version="1.31.1")
    )
    with pytest.raises(InputRefused, match="holds a CPU engine"):
        combine_archives((two[0], cpu_archive), tmp_path / "out.tar.gz")
