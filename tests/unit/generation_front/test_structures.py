"""Schemas and expressions by the size of the grammar that they become."""

from __future__ import annotations

import pytest

from container.generation_front.structures import check_structures
from container.server.types import RequestFault

pytestmark = pytest.mark.unit


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": value}}}


def regex(text):
    return {"structured_outputs": {"regex": text}}


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 200},
        "email": {"type": "string", "pattern": r"^[\w.]{1,64}@[\w.]{1,255}$"},
        "tags": {"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 30}},
        "parent": {"$ref": "#"},
    },
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": PERSON}}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"response_format": {"type": "json_object"}},
        schema(PERSON),
        {"tools": [TOOL] * 20},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"structured_outputs": {"json": '{"type": "array", "maxItems": 100}'}},
        regex(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}(\.\d+)?Z)?"),
        regex(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:cat|dog)+"),
    ],
    ids=range(8),
)
def test_takes_what_people_write(document):
    check_structures(document)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (schema({"type": "array", "minItems": 10**9}), "'response_format' becomes a grammar"),
        (schema({"maxItems": 400, "items": {"maxItems": 400}}), "becomes a grammar"),
        (schema({"type": "string", "pattern": "(a{1,999}){1,999}"}), "becomes a grammar"),
        (schema({"patternProperties": {"a{199999}": {}}}), "becomes a grammar"),
        (schema({"maxLength": 1e12}), "becomes a grammar"),
        (regex("((a{1,999}){1,999}){1,999}"), "'structured_outputs' becomes"),
        (regex("a{200000}"), "becomes a grammar"),
        (regex(r"\p{Han}+"), "is not read here"),
        (schema({"pattern": "(["}), "is not read here"),
        ({"structured_outputs": {"json": '{"minItems": 1000000}'}}, "becomes a grammar"),
        ({"structured_outputs": {"json": "{"}}, "is no JSON"),
        ({"structured_outputs": {"choice": ["a" * 70_000]}}, "more than 65536 bytes"),
        ({"structured_outputs": {"grammar": "root ::= root"}}, "not 'grammar'"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "not 'structural_tag'"),
        ({"structured_outputs": "x"}, "must be an object"),
        ({"response_format": {"type": "structural_tag"}}, "is not taken here"),
        ({"tools": [{**TOOL, "x": {"maxItems": 10**6}}]}, "'tools' becomes a grammar"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refuses(document, sentence):
    with pytest.raises(RequestFault, match=sentence):
        check_structures(document)


def test_refuses_what_is_nested_deeply():
    value = {}
    for _ in range(40):
        value = {"items": value}
    with pytest.raises(RequestFault, match="deeper than 32"):
        check_structures(schema(value))
