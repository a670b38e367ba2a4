"""config.pbtxt: golden files of every task and device, and rules that protobuf does not know."""

from __future__ import annotations

import re

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.model_configuration import configurations
from engine_build.packaging.pbtxt import TRUE, Word, entry, text
from onboarding.manifest import Prompts
from onboarding.processing_spec import ClientTensorSpec, PreprocessingSpec
from onboarding.serving_spec import ServingSpec
from tests.unit.engine_build import golden_configurations
from tests.unit.engine_build.golden_configurations import (
    CASES,
    DETECTOR,
    LOGITS,
    SHORT,
    TUNED,
    VISION,
    golden,
    served_model,
)


@pytest.mark.parametrize("case", CASES)
def test_configuration_is_the_golden_one(case):
    assert golden_configurations.text(case) == golden(case).read_text()


def test_golden_files_are_those_of_the_cases():
    assert {path.stem for path in golden_configurations.GOLDEN.glob("*.pbtxt")} == set(CASES)


def test_text_on_a_gpu_is_an_ensemble_of_two_members():
    texts = configurations(served_model(), is_cpu=False)
    folders = ("embedder", "embedder_tokenizer", "embedder_engine")
    assert list(texts) == [f"{folder}/config.pbtxt" for folder in folders]
    # Triton's SageMaker front end finds the ensemble of a multi-model archive by this very text.
    ensembles = [name for name, text in texts.items() if 'platform: "ensemble"' in text]
    assert ensembles == ["embedder/config.pbtxt"]
    assert not any("\nname:" in f"\n{text}" for text in texts.values())


def test_processing_stands_at_the_ends_of_an_ensemble_of_every_engine():
    for case, engine in (("cpu-cleaned", ["engine"]), ("gpu-cleaned", ["tokenizer", "engine"])):
        served, is_cpu = CASES[case]
        texts = configurations(served, is_cpu=is_cpu)
        parts = ["preprocessing", *engine]
        steps = re.findall(r'model_name: "embedder_(\w+)"', texts["embedder/config.pbtxt"])
        assert steps == parts
        assert set(texts) == {
            f"embedder{part}/config.pbtxt" for part in ("", *(f"_{p}" for p in parts))
        }


def test_refuses_a_tensor_that_has_the_name_of_another_inside():
    tokens = ClientTensorSpec(name="input_ids", datatype="INT64", dims=(-1,))
    code = PreprocessingSpec(file="a.py", sha256="a" * 64, inputs=(tokens,))
    served = served_model(serving=ServingSpec(preprocessing=code))
    assert configurations(served, is_cpu=True)
    with pytest.raises(InputRefused, match="'input_ids' names two tensors of its ensemble"):
        configurations(served, is_cpu=False)


def test_tensors_on_a_gpu_are_the_plan_alone():
    assert list(configurations(served_model(**VISION), is_cpu=False)) == ["vision/config.pbtxt"]


def engine_lines(**changes):
    text = configurations(served_model(**changes), is_cpu=False)["embedder_engine/config.pbtxt"]
    return [line.strip() for line in text.splitlines()]


TWO_PROFILES = (*served_model().profiles, SHORT)


def test_warm_up_of_a_plan_follows_the_spec_and_covers_every_profile():
    assert "model_warmup {" not in engine_lines(serving=ServingSpec(warm_up=False))
    names = [line for line in engine_lines(profiles=TWO_PROFILES) if 'name: "profile' in line]
    assert names == [
        f'name: "profile {index} {size}"' for index in (0, 1) for size in ("min", "opt", "max")
    ]


def test_graphs_are_of_the_opt_shapes_and_preferred_batches_within_a_profile():
    lines = engine_lines(serving=TUNED, profiles=TWO_PROFILES)
    specs = lines[: lines.index("model_warmup {")]
    batches = [line for line in specs if line.startswith("batch_size:")]
    assert batches == [f"batch_size: {size}" for size in (1, 4, 4, 8)]


def test_axis_of_unknown_size_has_neither_graph_nor_warm_up():
    text = configurations(served_model(**DETECTOR), is_cpu=False)["detector/config.pbtxt"]
    assert "graphs" not in text and "model_warmup" not in text


def test_pbtxt_escapes_what_would_end_a_string():
    assert text([("name", 'a"b\\c\nü')]) == 'name: "a\\"b\\\\c\\012ü"\n'
    message = [("enable", TRUE), ("kind", Word("KIND_CPU")), ("dims", ()), ("map", entry("k", 1))]
    lines = ("enable: true", "kind: KIND_CPU", "dims: [ ]", "map {", '  key: "k"', "  value: 1")
    assert text(message) == "\n".join((*lines, "}\n"))


def test_refuses_a_cache_beside_prompts():
    cached = {"serving": ServingSpec(response_cache=True)}
    prompts = Prompts(texts={"query": "find: ", "document": ""})
    words = r"has prompts \(query, document\), and response_cache would answer a text from memory"
    with pytest.raises(InputRefused, match=words):
        configurations(served_model(**cached, prompts=prompts), is_cpu=False)
    alike = Prompts(texts={"query": "", "document": ""})
    for others in ({"prompts": alike, **cached}, {"prompts": prompts}):
        assert configurations(served_model(**others), is_cpu=False)


def test_refuses_a_half_precision_answer_of_a_text_task_on_a_gpu():
    half = {"outputs": (LOGITS[0].model_copy(update={"datatype": "FP16"}),)}
    reason = "output 'logits' has datatype FP16; task text-embedding answers in FP32"
    with pytest.raises(InputRefused, match=reason):
        configurations(served_model(**half), is_cpu=False)
    assert "TYPE_FP32" in configurations(served_model(**half), is_cpu=True)["embedder/config.pbtxt"]
