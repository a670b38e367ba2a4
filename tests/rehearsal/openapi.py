"""Requests of GitHub's REST API, validated by GitHub's own OpenAPI description.

The fixture holds the operations that the forge answers. To write it anew:
`npm pack @octokit/openapi@23.0.2`, `tar xzf octokit-openapi-*.tgz`, then
`.venv/bin/python -m tests.rehearsal.openapi package/generated/api.github.com.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema_rs

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "github" / "openapi.json"
NOT_VALIDATED = frozenset({"description", "example", "examples", "x-multi-segment", "title"})


class Operations:
    """Finds the faults of requests; GitHub ignores unknown fields, and here they are faults."""

    def __init__(self) -> None:
        document = json.loads(FIXTURE.read_text())
        self.operations = document["operations"]
        self.validators = {
            name: jsonschema_rs.Draft4Validator(operation["body"])
            for name, operation in self.operations.items()
            if "body" in operation
        }

    def faults(self, method, template, query, body):
        """Return every fault of a request to a path template of the API."""
        name = f"{method} {template}"
        operation = self.operations.get(name)
        if operation is None:
            return [f"{name}: no such operation in GitHub's API"]
        faults = [f"query parameter {key} is unknown" for key in query.keys() - operation["query"]]
        if "body" not in operation:
            return [*faults, *([] if body is None else [f"{name} takes no body"])]
        if body is None:
            return [*faults, *(["a body is required"] if operation["required"] else [])]
        known = operation["body"].get("properties")
        if known is not None and isinstance(body, dict):
            faults += [f"field {key} is unknown" for key in sorted(body.keys() - known.keys())]
        errors = self.validators[name].iter_errors(body)
        return [*faults, *(error.message for error in errors)]


def operation_of(document, method, template):
    """Return what the fixture keeps of one operation: its query parameters and its body."""
    operation = document["paths"][template][method.lower()]
    parameters = [plain_schema(document, item) for item in operation.get("parameters", ())]
    found = {"query": sorted(item["name"] for item in parameters if item["in"] == "query")}
    body = operation.get("requestBody")
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        found |= {"required": body.get("required", False), "body": plain_schema(document, schema)}
    return found


def plain_schema(document, schema):
    """Return a schema without references, descriptions, and OpenAPI's word for null."""
    if isinstance(schema, list):
        return [plain_schema(document, item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return plain_schema(document, target)
    kept = {k: plain_schema(document, v) for k, v in schema.items() if is_kept(k, v)}
    if kept.pop("nullable", False) and isinstance(kept.get("type"), str):
        kept["type"] = [kept["type"], "null"]
    return kept


def is_kept(key, value):
    """A property may have the name of a keyword; only a keyword's value is a text or an example."""
    return key not in NOT_VALIDATED or isinstance(value, dict)


def main(source):
    from tests.rehearsal.forge.server import ROUTES

    document = json.loads(Path(source).read_text())
    operations = {
        f"{route.method} {route.template}": operation_of(document, route.method, route.template)
        for route in ROUTES
    }
    content = {"package": f"@octokit/openapi {document['info']['version']}",
               "operations": operations}  # fmt: skip
    FIXTURE.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
