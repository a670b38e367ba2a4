"""config.pbtxt: golden files of every task and device, and rules that protobuf does not know."""

from __future__ import annotations

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.model_configuration import configurations
from engine_build.packaging.pbtxt import TRUE, Word, entry, text
from onboarding.manifest import Prompts, TensorRecord
from onboarding.processing_spec import ClientTensorSpec, PreprocessingSpec
from onboarding.serving_spec import ServingSpec
from tests.unit.engine_build import golden_configurations
from tests.unit.engine_build.golden_configurations import (
    CASES,
    LOGITS,
    golden,
    served_model,
)


@pytest.mark.parametrize("case", CASES)
def test_configuration_is_the_golden_one(case):
    assert golden_configurations.text(case) == golden(case).read_text()


def test_golden_files_are_those_of_the_cases():
    assert {path.stem for path in golden_configurations.GOLDEN.glob("*.pbtxt")} == set(CASES)


def test_refuses_a_tensor_that_has_the_name_of_another_inside():
    tokens = ClientTensorSpec(name="input_ids", datatype="INT64", dims=(-1,))
    code = PreprocessingSpec(file="a.py", sha256="a" * 64, inputs=(tokens,))
    served = served_model(serving=ServingSpec(preprocessing=code))
    assert configurations(served, is_cpu=True)
    with pytest.raises(InputRefused, match="'input_ids' names two tensors of its ensemble"):
        configurations(served, is_cpu=False)


def test_table_of_an_input_is_not_that_of_a_preprocessings_values():
    category = TensorRecord(name="category", datatype="INT64", shape=(-1,), table_rows=4)
    known = {"task": "tensors", "inputs": (category,)}
    assert [record.table_rows for record in served_model(**known).client_inputs] == [4]
    code = PreprocessingSpec(file="a.py", sha256="a" * 64)
    record = served_model(**known, serving=ServingSpec(preprocessing=code)).preprocessing
    assert [item.table_rows for item in (*record.inputs, *record.outputs)] == [None, None]


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


def test_no_configuration_names_itself_and_the_ensemble_is_the_models_own_folder():
    """Triton's SageMaker front end finds the ensemble of a multi-model archive by its text."""
    for case, (served, is_cpu) in CASES.items():
        texts = configurations(served, is_cpu=is_cpu)
        assert not any("\nname:" in f"\n{text}" for text in texts.values()), case
        ensembles = [name for name, text in texts.items() if 'platform: "ensemble"' in text]
        assert ensembles in ([], [f"{served.model}/config.pbtxt"]), case
