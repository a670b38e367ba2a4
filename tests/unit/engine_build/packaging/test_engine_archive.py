"""Archives and the configurations in them."""

from __future__ import annotations

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.archive import read_engine_archive
from engine_build.packaging.repository import TRUE, Word, configurations, entry, text
from onboarding.manifest import MANIFEST_NAME, Prompts, TensorRecord
from onboarding.serving_spec import ClientTensorSpec, PreprocessingSpec, ServingSpec
from tests.unit.engine_build import golden_configurations
from tests.unit.engine_build.golden_configurations import (
    CASES,
    LOGITS,
    golden,
    served_model,
)
from tests.unit.engine_build.packaging.archives import ENGINE, publish_test_archive, replace_files

PLAN = f"{ENGINE}/1/model.plan"


@pytest.fixture
def one(tmp_path):
    return publish_test_archive(tmp_path, "8.6")


def assert_refused(archive, folder, words):
    with pytest.raises(InputRefused, match=words):
        read_engine_archive(archive, folder / "unpacked")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({PLAN: b"other"}, "model.plan is not the file that its manifest names"),
        ({PLAN: b""}, "model.plan is in the manifest but not in its archive"),
        ({"more": b"more"}, "more is in the archive but not in its manifest"),
        ({MANIFEST_NAME: b""}, "has no manifest.json"),
        ({MANIFEST_NAME: b"{}"}, "is not the manifest of one engine"),
    ],
)
def test_refuses_an_archive_that_is_not_as_published(files, words, one, tmp_path):
    assert_refused(replace_files(one, tmp_path, **files), tmp_path, words)


def test_refuses_a_folder_and_names_the_archive_in_it(one, tmp_path):
    words = f"{one.parent} is a folder; give the engine archive itself, such as {one}.$"
    assert_refused(one.parent, tmp_path, words)


def test_refuses_an_archive_with_any_byte_after_its_header_changed(one, tmp_path):
    whole, header = one.read_bytes(), 10
    for index in range(header, len(whole), max(1, len(whole) // 40)):
        one.write_bytes(whole[:index] + bytes([whole[index] ^ 0xFF]) + whole[index + 1 :])
        assert_refused(one, tmp_path / str(index), "publish the engine again")


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
