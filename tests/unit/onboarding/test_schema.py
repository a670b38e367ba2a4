"""The generated JSON Schema is the shipped one, and says enough for an editor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from onboarding import schema

ROOT = Path(schema.__file__).parents[1]
DOCUMENTS = {name: json.loads(text) for name, text in schema.schemas().items()}
REGISTRY = Registry().with_resources(
    (name, DRAFT202012.create_resource(document)) for name, document in DOCUMENTS.items()
)


def validator(kind):
    """Return a validator of one kind of file that resolves references as an editor does."""
    name = f"{kind}.schema.json"
    return Draft202012Validator({**DOCUMENTS[name], "$id": name}, registry=REGISTRY)


def test_shipped_schemas_are_what_the_code_generates():
    assert schema.main(["--check"]) == 0


@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_every_property_has_a_description(name):
    def undescribed(node, path=""):
        if isinstance(node, dict):
            for key, value in node.get("properties", {}).items():
                if "description" not in value:
                    yield f"{path}.{key}"
            for key, value in node.items():
                yield from undescribed(value, f"{path}/{key}")

    assert list(undescribed(DOCUMENTS[name])) == []


SHIPPED = [
    (kind, path)
    for kind in ("model", "endpoint", "environment")
    for folder in (ROOT, ROOT / "examples" / "chat")
    for path in (folder / f"{kind}s").glob("*.yaml")
    if not path.name.endswith(".lock.yaml")
]
REPOSITORY = {"triton_repository": {"folder": "models/mine", "sha256": "0" * 64}}
KINDS = [
    {"task": "ensemble", "accuracy": {"dataset": "d"}, "steps": [{"model": "a"}], "outputs": ["o"]},
    {"task": "tensors", "source": REPOSITORY, "endpoint": {"instance_type": "ml.g5.xlarge"}},
]


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda item: getattr(item, "stem", item))
def test_schemas_take_the_shipped_files(kind, path):
    validator(kind).validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "document",
    [*(yaml.safe_load(path.read_text()) for kind, path in SHIPPED if kind == "model"),
     *({"name": "a", **kind} for kind in KINDS)],
)  # fmt: skip
def test_model_schema_refuses_a_key_that_the_kind_of_file_has_not(document):
    check = validator("model")
    check.validate(document)
    of_others = {"context", "steps", "engine", "accuracy"} - document.keys()
    for key in (*of_others, "enigne"):
        assert not check.is_valid({**document, key: {}}), key
    needed = "name" if document["task"] == "ensemble" else "source"
    assert not check.is_valid({key: value for key, value in document.items() if key != needed})
