"""config.pbtxt.

Golden files for every task and device, and the rules that Triton's protobuf does not know.
"""

from __future__ import annotations

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.model_configuration import configurations
from engine_build.packaging.pbtxt import TRUE, Word, entry, text
from onboarding.manifest import ProfileRecord, TensorRecord
from onboarding.model_spec import DynamicBatchingSpec, ServingSpec
from tests.unit.engine_build import golden_configurations
from tests.unit.engine_build.golden_configurations import (
    CASES,
    DETECTOR,
    LOGITS,
    SHORT,
    TOKENS,
    TUNED,
    VISION,
    golden,
    served,
)


@pytest.mark.parametrize("case", CASES)
def test_configuration_is_the_golden_one(case):
    assert golden_configurations.text(case) == golden(case).read_text()


def test_golden_files_are_those_of_the_cases():
    assert {path.stem for path in golden_configurations.GOLDEN.glob("*.pbtxt")} == set(CASES)


def test_text_on_a_gpu_is_an_ensemble_of_two_members():
    found = configurations(served(), is_cpu=False)
    assert list(found) == [
        "embedder/config.pbtxt",
        "embedder_tokenizer/config.pbtxt",
        "embedder_engine/config.pbtxt",
    ]
    # Triton's SageMaker front end finds the ensemble of a multi-model archive by this very text.
    assert [name for name, each in found.items() if 'platform: "ensemble"' in each] == [
        "embedder/config.pbtxt"
    ]
    assert not any(
        line.startswith("name:") for each in found.values() for line in each.splitlines()
    )


def test_tensors_on_a_gpu_are_the_plan_alone():
    assert list(configurations(served(**VISION), is_cpu=False)) == ["vision/config.pbtxt"]


def test_warm_up_of_a_plan_follows_the_spec_and_covers_every_profile():
    cold = configurations(served(serving=ServingSpec(warm_up=False)), is_cpu=False)[
        "embedder_engine/config.pbtxt"
    ]
    warm = configurations(served(profiles=(*served().profiles, SHORT)), is_cpu=False)[
        "embedder_engine/config.pbtxt"
    ]
    assert "model_warmup" not in cold
    assert [line for line in warm.splitlines() if line.startswith('  name: "profile')] == [
        f'  name: "profile {index} {size}"' for index in (0, 1) for size in ("min", "opt", "max")
    ]


def test_graphs_are_of_the_opt_shapes_and_preferred_batches_within_a_profile():
    found = configurations(
        served(serving=TUNED, profiles=(*served().profiles, SHORT)), is_cpu=False
    )["embedder_engine/config.pbtxt"]
    lines = found.splitlines()
    batches = [line.strip() for line in lines if line.startswith("      batch_size:")]
    assert batches == [f"batch_size: {size}" for size in (1, 4, 4, 8)]


def test_axis_of_unknown_size_has_neither_graph_nor_warm_up():
    found = configurations(served(**DETECTOR), is_cpu=False)["detector/config.pbtxt"]
    assert "graphs" not in found and "model_warmup" not in found


def test_pbtxt_escapes_what_would_end_a_string():
    assert text([("name", 'a"b\\c\nü')]) == 'name: "a\\"b\\\\c\\012ü"\n'
    assert text(
        [("enable", TRUE), ("kind", Word("KIND_CPU")), ("dims", ()), ("map", entry("k", 1))]
    ) == ('enable: true\nkind: KIND_CPU\ndims: [ ]\nmap {\n  key: "k"\n  value: 1\n}\n')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_batch_size": 0}, "max_batch_size is 0; it must be 1 or more"),
        ({"max_batch_size": -5}, "max_batch_size is -5"),
        (
            {"max_batch_size": 33},
            "max_batch_size is 33, but no optimization profile takes more than 32 rows",
        ),
        (
            {
                "serving": ServingSpec(
                    dynamic_batching=DynamicBatchingSpec(preferred_batch_sizes=(8, 64))
                )
            },
            "preferred batch size 64 is not from 1 to max_batch_size 32; change "
            "preferred_batch_sizes",
        ),
        (
            {
                "serving": ServingSpec.model_construct(
                    **(dict(ServingSpec()) | {"instances_per_gpu": 0})
                )
            },
            "instances_per_gpu is 0",
        ),
        ({"profiles": ()}, "it has no optimization profile"),
        (
            {"profiles": (ProfileRecord(batch=(1, 40, 32), sequence=(1, 2, 3)),)},
            r"optimization profile 0 has batch \[1, 40, 32\]; it must be 1 <= min <= opt <= max",
        ),
        (
            {"profiles": (ProfileRecord(batch=(1, 8, 32), sequence=(0, 2, 3)),)},
            r"optimization profile 0 has sequence \[0, 2, 3\]",
        ),
        ({"inputs": ()}, "the network has no input"),
        (
            {"inputs": (TOKENS[0], TOKENS[0])},
            "two inputs have the name 'input_ids'; rename one in the network",
        ),
        (
            {"outputs": (TensorRecord(name="", datatype="FP32", shape=(-1, 2)),)},
            "an output of the network has no name",
        ),
        (
            {"outputs": (TensorRecord(name="y", datatype="BF16", shape=(-1, 2)),)},
            "output 'y' has datatype BF16; allowed: BOOL, INT8",
        ),
        (
            {"outputs": (TensorRecord(name="y", datatype="FP32", shape=(8, 2)),)},
            r"output 'y' has shape \[8, 2\]; its first axis",
        ),
        (
            {"outputs": (TensorRecord(name="y", datatype="FP32", shape=(-1, 0)),)},
            r"output 'y' has shape \[-1, 0\]; each axis",
        ),
        ({"model": "a_b"}, "the name 'a_b' must have no underscore or slash"),
    ],
)
@pytest.mark.parametrize("is_cpu", [True, False])
def test_refuses_what_triton_would_refuse_later(changes, words, is_cpu):
    with pytest.raises(InputRefused, match=f"model configuration of .*: {words}"):
        configurations(served(**changes), is_cpu=is_cpu)


def test_refuses_a_half_precision_answer_of_a_text_task_on_a_gpu():
    half = {"outputs": (LOGITS[0].model_copy(update={"datatype": "FP16"}),)}
    with pytest.raises(
        InputRefused, match="output 'logits' has datatype FP16; a text task answers in FP32"
    ):
        configurations(served(**half), is_cpu=False)
    assert "TYPE_FP32" in configurations(served(**half), is_cpu=True)["embedder/config.pbtxt"]
