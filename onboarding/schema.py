"""JSON Schema of each kind of file: `python -m onboarding.schema --write`, or `--check`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from onboarding.model_spec import (
    ENSEMBLE,
    OF_NETWORKS,
    OF_STEPS,
    REPOSITORY,
    EndpointSpec,
    EnsembleSpec,
    ModelSpec,
    RepositorySpec,
    SharedEndpointSpec,
)
from onboarding.text_generation import spec as text_generation
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.values import Value

FOLDER = Path(__file__).parent.parent / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
OWN, KEYS = "EndpointSpec", "EndpointKeys"
"""An endpoint of a model's own, and its keys alone, which shared ones have too."""

_REFERENCE = "#/$defs/"


def schemas() -> dict[str, str]:
    """The text of every schema file, by file name."""
    kinds = {
        "model": _model_schema(),
        "endpoint": _endpoint_schema(),
        "environment": _schema(EnvironmentSpec, "An environment: environments/<name>.yaml"),
    }
    return {
        f"{kind}.schema.json": json.dumps(schema, indent=2, sort_keys=True) + "\n"
        for kind, schema in kinds.items()
    }


def main(arguments: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    """Write the schema files, or say in one sentence which of them drifted; 1 when some did."""
    parser = argparse.ArgumentParser(prog="python -m onboarding.schema", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write schemas/*.schema.json")
    action.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 when a schema file is not what the code generates",
    )
    files = {folder / name: text for name, text in schemas().items()}
    if parser.parse_args(arguments).write:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
        return 0
    drifted = [
        f"schemas/{path.name}"
        for path, text in files.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if drifted:
        print(
            f"{', '.join(drifted)}: not what onboarding/ generates; run `python -m "
            "onboarding.schema --write` and commit.",
            file=sys.stderr,
        )
    return 1 if drifted else 0


def _model_schema() -> dict[str, Any]:
    """Return the schema of every kind of model file.

    Keys of several kinds stand once, below the condition that tells the kinds apart;
    `propertyNames` says which of them a kind has.
    """
    kinds = {
        kind: kind.model_json_schema()
        for kind in (ModelSpec, EnsembleSpec, TextGenerationSpec, RepositorySpec)
    }
    definitions = {key: value for kind in kinds.values() for key, value in kind["$defs"].items()}
    definitions[KEYS] = {"properties": definitions[OWN]["properties"]}
    definitions[OWN] = _key_names(definitions[OWN]) | {"$ref": f"{_REFERENCE}{KEYS}"}
    network, ensemble, generator = (
        kinds[kind]["properties"] for kind in (ModelSpec, EnsembleSpec, TextGenerationSpec)
    )
    every = {key: network[key] for key in ("name", "labels", "task")}
    words = [*every["task"]["enum"], text_generation.TASK]
    return {
        "$schema": DIALECT,
        "title": "A model: models/<name>.yaml",
        "type": "object",
        "$defs": definitions,
        "properties": every | {"task": every["task"] | {"enum": words}},
        "if": _has("task", {"const": text_generation.TASK, "description": "A text generator"}),
        "then": {
            **_key_names(kinds[TextGenerationSpec]),
            "properties": _without(generator, every),
        },
        "else": {
            "properties": _without(ensemble, every) | _without(network, every),
            "if": _has("task", {"const": ENSEMBLE, "description": "An archive of several models"}),
            "then": _key_names(kinds[EnsembleSpec], OF_STEPS),
            "else": {
                "if": _has(
                    "source", {"required": [REPOSITORY], "description": "A Triton repository"}
                ),
                "then": _key_names(kinds[RepositorySpec], OF_NETWORKS),
                "else": _key_names(kinds[ModelSpec]),
            },
        },
    }


def _has(key: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {key: schema}, "required": [key]}


def _without(properties: Mapping[str, Any], keys: Container[str]) -> dict[str, Any]:
    return {key: value for key, value in properties.items() if key not in keys}


def _key_names(schema: Mapping[str, Any], left_out: Container[str] = ()) -> dict[str, Any]:
    """Return which keys a kind has, and which it needs, of properties that stand elsewhere."""
    names = {"enum": sorted(_without(schema["properties"], left_out))}
    kept = _without(schema, ("properties", "additionalProperties", "$defs"))
    return {**kept, "propertyNames": names}


def _endpoint_schema() -> dict[str, Any]:
    """Return the schema of shared endpoints: keys that models have too stand in the model's."""
    schema = _schema(SharedEndpointSpec, "A shared, multi-model endpoint: endpoints/<name>.yaml")
    own = _without(schema["properties"], EndpointSpec.model_fields)
    return {
        **_key_names(schema),
        "$ref": f"model.schema.json{_REFERENCE}{KEYS}",
        "properties": own,
    }


def _schema(spec_type: type[Value], title: str) -> dict[str, Any]:
    schema = spec_type.model_json_schema()
    return {**schema, "$schema": DIALECT, "title": title}


if __name__ == "__main__":
    sys.exit(main())
