"""The generated JSON Schema is the shipped one, and says enough for an editor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onboarding import schema

ROOT = Path(schema.__file__).parents[1]


def test_shipped_schemas_are_what_the_code_generates():
    assert schema.main(["--check"]) == 0


def test_check_says_which_file_drifted(tmp_path, capsys):
    schema.main(["--write"], folder=tmp_path)
    (tmp_path / "model.schema.json").write_text("{}")
    (tmp_path / "endpoint.schema.json").unlink()
    assert schema.main(["--check"], folder=tmp_path) == 1
    sentence = capsys.readouterr().err
    assert (
        "schemas/model.schema.json, schemas/endpoint.schema.json" in sentence
        and "--write" in sentence
    )
    assert "environment" not in sentence


@pytest.mark.parametrize("name", list(schema.schemas()))
def test_every_property_has_a_description(name):
    def undescribed(node, path=""):
        if isinstance(node, dict):
            for key, value in node.get("properties", {}).items():
                if "description" not in value:
                    yield f"{path}.{key}"
            for key, value in node.items():
                yield from undescribed(value, f"{path}/{key}")

    assert list(undescribed(json.loads(schema.schemas()[name]))) == []


def test_override_sections_know_the_keys_and_require_none():
    definitions = json.loads(schema.schemas()["environment.schema.json"])["$defs"]
    override = definitions["ModelSpecOverride"]
    assert "name" not in override["properties"] and "required" not in override
    assert override["properties"]["engine"]["$ref"] == "#/$defs/EngineSpecOverride"
    assert (
        "required" not in definitions["EngineSpecOverride"]
        and definitions["EngineSpecOverride"]["additionalProperties"] is False
    )
    assert definitions["OptimizationProfileSpec"]["required"] == ["batch"]


def test_every_reference_leads_somewhere():
    for text in schema.schemas().values():
        document = json.loads(text)
        references = [line.split('"')[3] for line in text.splitlines() if '"$ref"' in line]
        assert all(
            reference.removeprefix("#/$defs/") in document["$defs"] for reference in references
        )


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("models", "model"), ("endpoints", "endpoint"), ("environments", "environment")],
)
def test_every_shipped_file_names_its_schema(folder, kind):
    files = [
        path for path in (ROOT / folder).glob("*.yaml") if not path.name.endswith(".lock.yaml")
    ]
    assert files
    for path in files:
        assert (
            path.read_text().splitlines()[0]
            == f"# yaml-language-server: $schema=../schemas/{kind}.schema.json"
        )


def test_files_of_ensembles_and_their_overrides_have_their_keys():
    model = json.loads(schema.schemas()["model.schema.json"])
    assert {"steps", "outputs"} <= model["then"]["properties"].keys()
    assert not {"source", "engine"} & model["then"]["properties"].keys()
    network = model["else"]["else"]["else"]
    assert "source" in network["required"] and "steps" not in network["properties"]
    text = schema.schemas()["environment.schema.json"]
    override = json.loads(text)["$defs"]["ModelSpecOverride"]["properties"]
    assert {"steps", "source", "serving"} <= override.keys()


def test_files_of_text_generators_and_their_overrides_have_their_keys():
    model = json.loads(schema.schemas()["model.schema.json"])
    generator = model["else"]["then"]
    assert model["else"]["if"]["properties"]["task"]["const"] == "text-generation"
    assert {"context", "slo", "quantization"} <= generator["properties"].keys()
    assert "engine" not in generator["properties"] and "context" in generator["required"]
    definitions = json.loads(schema.schemas()["environment.schema.json"])["$defs"]
    forms = definitions["ModelsSpec"]["additionalProperties"]["anyOf"]
    names = ["ModelSpecOverride", "TextGenerationSpecOverride"]
    assert [form["$ref"].rpartition("/")[2] for form in forms] == names
    assert "required" not in definitions["TextGenerationSpecOverride"]
