"""The task of a checkpoint or a network is what its files say, or is asked for."""

from __future__ import annotations

import json

import pytest

from roundhouse.errors import RoundhouseError
from roundhouse.inspection.facts import checkpoint_facts, network_facts, pooling_mode
from roundhouse.inspection.source_files import SourceFiles
from tests.unit.roundhouse.engines import REPOSITORY
from tests.unit.roundhouse.inspection.sources import BERT, CLASSIFIER, EMBEDDER, checkpoint_content

FIXTURES = REPOSITORY / "tests" / "fixtures" / "tiny_embedder"


def source(content, network=None) -> SourceFiles:
    pins = {"huggingface": "owner/name@commit"}
    return SourceFiles(pins=pins, names=frozenset(content), read=content.get, network=network)


def facts_of(*architectures, task=None, **config):
    documents = {"config.json": {**BERT, "architectures": list(architectures), **config}}
    return checkpoint_facts(source(checkpoint_content(documents)), task)


@pytest.mark.parametrize(
    ("architecture", "given", "task"),
    [
        ("MPNetModel", None, "text-embedding"),
        ("RobertaForSequenceClassification", None, "text-classification"),
        ("BertForMaskedLM", "text-embedding", "text-embedding"),
    ],
)
def test_task_follows_the_architecture_or_is_the_users(architecture, given, task):
    facts = facts_of(architecture, task=given)
    assert facts.task == task and ("--task" if given else architecture) in facts.because


UNSURE = r"its task is not certain .* say it with --task: image-"
UNBUILT = "no engine is built for it; .*docs/text-gen"


@pytest.mark.parametrize(
    ("architectures", "more", "message"),
    [
        ((), {}, UNSURE),
        (("BertForPreTraining",), {}, UNSURE),
        (("LlamaForCausalLM",), {}, UNBUILT),
        (("GPT2LMHeadModel",), {}, UNBUILT),
        (("T5ForConditionalGeneration",), {}, UNBUILT),
        (("BertModel",), {"task": "tensors"}, "needs an ONNX file"),
        (
            ("BertForSequenceClassification",),
            {"id2label": ["calm", "glad"]},
            r'as a list.*names: \{"0": "calm", "1": "glad"\}',
        ),
    ],
)
def test_refuses_a_checkpoint_without_a_task_that_engines_have(architectures, more, message):
    with pytest.raises(RoundhouseError, match=message):
        facts_of(*architectures, **more)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config.json": None, "sub/config.json": b"{}"}, "has no config.json; .*--path: sub"),
        ({"config.json": None}, "has no config.json; name a checkpoint"),
        ({"model.safetensors": None, "pytorch_model.bin": b""}, "pytorch_model.bin is a pickle"),
        ({"model.safetensors": None}, "has no model.safetensors; save it"),
        ({"tokenizer.json": None}, "has no tokenizer.json; load its tokenizer"),
        ({"config.json": None, "adapter_config.json": b"{}"}, "LoRA adapter, .* merge it"),
        ({"config.json": b"{"}, "config.json is no JSON"),
        ({"config.json": b"[]"}, "config.json holds no JSON object"),
    ],
)
def test_refuses_a_checkpoint_that_is_not_whole(changes, message):
    content = {**checkpoint_content({"config.json": BERT}), **changes}
    known = {name: data for name, data in content.items() if data is not None}
    with pytest.raises(RoundhouseError, match=message):
        checkpoint_facts(source(known), None)


def pipeline(*modules):
    """modules.json of modules given as `path:kind`."""
    parts = (module.split(":") for module in modules)
    return [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in parts]


@pytest.mark.parametrize(
    ("modules", "has_config", "message"),
    [
        ((":Transformer", "1:LSTM", "2:Pooling"), True, "names .*Pooling; builds take .* --onnx"),
        (("0:Router",), True, "names Router; builds take .* --onnx"),
        (("0_CLIPModel:CLIPModel",), False, "names CLIPModel; builds take Transformer, Pooling"),
        (
            ("0_Transformer:Transformer", "1:Pooling"),
            False,
            "Transformer in 0_Transformer; .* save it",
        ),
    ],
)
def test_refuses_a_pipeline_that_no_build_takes(modules, has_config, message):
    content = checkpoint_content({**EMBEDDER, "modules.json": pipeline(*modules)})
    if not has_config:
        del content["config.json"]
    with pytest.raises(RoundhouseError, match=message):
        checkpoint_facts(source(content), None)


@pytest.mark.parametrize(
    ("pooling", "mode"),
    [
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({"pooling_mode": ["cls", "max"]}, "cls + max"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({}, "mean"),
    ],
)
def test_pooling_is_read_as_every_version_writes_it(pooling, mode):
    assert pooling_mode(pooling) == mode


@pytest.mark.parametrize(
    ("documents", "longest", "because"),
    [
        (EMBEDDER, 256, "sentence_bert_config.json"),
        (CLASSIFIER, 512, "max_position_embeddings"),
        ({"config.json": {**BERT, "max_position_embeddings": None}}, None, "names no limit"),
        (
            {"config.json": BERT, "tokenizer_config.json": {"model_max_length": 10**30}},
            512,
            "max_position_embeddings",
        ),
    ],
)
def test_longest_sequence_is_found(documents, longest, because):
    facts = checkpoint_facts(source(checkpoint_content(documents)), None)
    assert facts.longest == longest and because in facts.longest_because


def network(name, content=None, task=None):
    beside = {"tokenizer.json": b"{}"} if content is None else content
    return network_facts(source(beside, FIXTURES / name), task)


def test_network_has_the_task_of_the_configuration_beside_it():
    beside = {"tokenizer.json": b"", "config.json": json.dumps(CLASSIFIER["config.json"]).encode()}
    facts = network("classifier.onnx", beside)
    assert facts.task == "text-classification"
    assert network("classifier.onnx", task="text-classification").task == "text-classification"
    assert network("model.onnx").task == "text-embedding"


@pytest.mark.parametrize(
    ("name", "content", "task", "message"),
    [
        ("classifier.onnx", None, None, "names no task .* say it with --task"),
        ("model.onnx", {}, None, "no tokenizer.json lies beside it"),
        ("model.onnx", None, "tensors", "does not fit .* takes input_ids INT64"),
        ("arithmetic.onnx", None, "text-embedding", "does not fit .* allowed: tensors"),
        ("arithmetic.onnx", None, None, "dynamic beyond axis 1"),
        ("tokenizer.json", None, None, "is no ONNX file, or a damaged one; export"),
    ],
)
def test_refuses_a_network_that_does_not_fit(name, content, task, message):
    with pytest.raises(RoundhouseError, match=message):
        network(name, content, task)
