"""Properties against AWS's schema of their type.

Unknown values pass: only a deployment could refuse them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from onboarding.nearest import comma_list, nearest
from template_rules.values import boolean, is_known, number, shown, surely_has

Schema = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Violation:
    """What a schema refuses: the JSON Schema keyword that refuses it, and where."""

    keyword: str
    path: str
    what: str
    way_out: str
    value: str | None = None
    allowed: str | None = None


def violations(schema: Schema, properties: Mapping[str, Any]) -> Iterator[Violation]:
    """Everything that a type's schema refuses of its resolved properties."""
    yield from _walk(schema, schema, properties, "")


def _walk(root: Schema, schema: Schema, value: Any, path: str) -> Iterator[Violation]:
    if "$ref" in schema:
        definition = root["definitions"].get(str(schema["$ref"]).rsplit("/", 1)[-1])
        if definition is None:
            return
        schema = definition
    if value is None or not is_known(value):
        return
    wrong = _type(schema, value, path)
    if wrong is not None:
        yield wrong
    elif isinstance(value, dict):
        yield from _object(root, schema, value, path)
    elif isinstance(value, list):
        yield from _list(root, schema, value, path)
    else:
        yield from _scalar(schema, value, path)


def _type(schema: Schema, value: Any, path: str) -> Violation | None:
    given = schema.get("type", "object" if "properties" in schema else None)
    allowed = [given] if isinstance(given, str) else given
    if not allowed or any(_is(kind, value) for kind in allowed):
        return None
    kinds = " or ".join(_KINDS[kind] for kind in allowed)
    return Violation(
        keyword="type",
        path=path,
        what=f"{_last(path)} is not {kinds}",
        value=shown(value),
        allowed=kinds,
        way_out="write one",
    )


_KINDS = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def _is(kind: str, value: Any) -> bool:
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if kind == "boolean":
        return boolean(value) is not None
    if kind == "string":
        return isinstance(value, str | int | float)
    figure = number(value)
    return figure is not None and (kind == "number" or figure.is_integer())


def _object(root: Schema, schema: Schema, value: dict[str, Any], path: str) -> Iterator[Violation]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            what = f"{name} is missing{f' from {_last(path)}' if path else ''}"
            yield Violation(
                keyword="required", path=_below(path, name), what=what, way_out=f"write {name}"
            )
    for name, each in value.items():
        if name in properties:
            yield from _walk(root, properties[name], each, _below(path, name))
        elif not str(name).startswith("Fn::"):
            yield from _other_property(root, schema, name, each, path)
    yield from _together(schema, value, path)


def _other_property(
    root: Schema, schema: Schema, name: str, value: Any, path: str
) -> Iterator[Violation]:
    for pattern, each in schema.get("patternProperties", {}).items():
        compiled = _compiled(pattern)
        if compiled is None or compiled.search(str(name)):
            yield from _walk(root, each, value, _below(path, name))
            return
    if schema.get("additionalProperties") is not False or not schema.get("properties"):
        return
    known = [
        each for each in schema["properties"] if path or each not in schema.get("readOnly", ())
    ]
    match = nearest(str(name), known)
    way_out = "take it out" if match is None else f"did you mean {match}?"
    yield Violation(
        keyword="unknown",
        path=_below(path, name),
        what=f"{name} is no property here",
        allowed=comma_list(sorted(known)),
        way_out=way_out,
    )


def _together(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Violation]:
    """Properties that exclude or need one another."""
    for name, others in schema.get("dependentExcluded", {}).items():
        for other in others:
            if surely_has(value, name) and surely_has(value, other) and name < other:
                way_out = "take one of them out"
                yield Violation(
                    keyword="together",
                    path=_below(path, name),
                    what=f"{name} and {other} exclude each other",
                    way_out=way_out,
                )
    for name, others in schema.get("dependentRequired", {}).items():
        for other in others:
            if surely_has(value, name) and other not in value:
                yield Violation(
                    keyword="together",
                    path=path,
                    what=f"{name} needs {other}",
                    way_out=f"write {other}",
                )
    branches = [
        each["required"][0] for each in schema.get("oneOf", ()) if len(each["required"]) == 1
    ]
    either = schema.get("requiredXor") or (
        branches if len(branches) == len(schema.get("oneOf", ())) else ()
    )
    yield from _one_of(either, value, path)
    some = schema.get("requiredOr") or [each["required"][0] for each in schema.get("anyOf", ())]
    if some and not any(name in value for name in some):
        yield Violation(
            keyword="together",
            path=path,
            what="nothing of what is needed is there",
            allowed=comma_list(some),
            way_out="write one",
        )


def _one_of(either: Any, value: dict[str, Any], path: str) -> Iterator[Violation]:
    there = [name for name in either if surely_has(value, name)]
    perhaps = any(name in value for name in either)
    if either and (len(there) > 1 or not perhaps):
        what = (
            "none of what is needed is there"
            if not there
            else f"{' and '.join(there)} exclude each other"
        )
        yield Violation(
            keyword="together",
            path=path,
            what=what,
            allowed=f"exactly one of {comma_list(either)}",
            way_out="write one",
        )


def _list(root: Schema, schema: Schema, value: list[Any], path: str) -> Iterator[Violation]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield _length(path, "is too long", value, f"at most {most}")
    if least is not None and len(value) < least and all(is_known(each) for each in value):
        yield _length(path, "is too short", value, f"at least {least}")
    if schema.get("uniqueItems") and all(is_known(each) for each in value):
        texts = [repr(each) for each in value]
        if len(set(texts)) < len(texts):
            yield Violation(
                keyword="range",
                path=path,
                what=f"{_last(path)} holds the same thing twice",
                way_out="take one out",
            )
    each_schema = schema.get("items")
    if isinstance(each_schema, dict):
        for index, each in enumerate(value):
            yield from _walk(root, each_schema, each, f"{path}[{index}]")


def _length(path: str, what: str, value: list[Any], allowed: str) -> Violation:
    return Violation(
        keyword="range",
        path=path,
        what=f"{_last(path)} {what}",
        value=f"{len(value)} items",
        allowed=allowed,
        way_out="change it",
    )


def _scalar(schema: Schema, value: Any, path: str) -> Iterator[Violation]:
    text, figure = str(value), number(value)
    allowed = schema.get("enum")
    if (
        allowed is not None
        and text not in [str(each) for each in allowed]
        and boolean(value) is None
    ):
        match = nearest(text, [str(each) for each in allowed])
        way_out = "write one of these" if match is None else f"did you mean {match}?"
        words = comma_list([str(each) for each in allowed])
        yield Violation(
            keyword="enum",
            path=path,
            what=f"{_last(path)} is none of its values",
            value=text,
            allowed=words,
            way_out=way_out,
        )
    least, most = schema.get("minimum"), schema.get("maximum")
    if figure is not None and (
        (least is not None and figure < least) or (most is not None and figure > most)
    ):
        yield _range(path, f"{_last(path)} is out of range", text, _span(least, most, ""))
    if isinstance(value, str):
        yield from _text(schema, value, path)


def _text(schema: Schema, value: str, path: str) -> Iterator[Violation]:
    least, most = schema.get("minLength"), schema.get("maxLength")
    if (most is not None and len(value) > most) or (least is not None and len(value) < least):
        given = f"{shown(value)} ({len(value)} characters)"
        yield _range(
            path,
            f"{_last(path)} is {'too long' if least is None or len(value) >= least else 'too short'}",
            given,
            _span(least, most, " characters"),
        )
        return
    pattern = schema.get("pattern")
    compiled = None if pattern is None else _compiled(pattern)
    if compiled is not None and compiled.search(value) is None:
        what = f"{_last(path)} does not match its pattern"
        yield Violation(
            keyword="pattern",
            path=path,
            what=what,
            value=shown(value),
            allowed=pattern,
            way_out="change it to match",
        )


def _range(path: str, what: str, value: str, allowed: str) -> Violation:
    return Violation(
        keyword="range",
        path=path,
        what=what,
        value=value,
        allowed=allowed,
        way_out="bring it within",
    )


def _span(least: Any, most: Any, unit: str) -> str:
    if most is None:
        return f"at least {least}{unit}"
    return f"at most {most}{unit}" if least is None else f"{least} to {most}{unit}"


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for a pattern that Python does not read, such as one with `\\p{L}`."""
    try:
        return re.compile(pattern)
    except re.error:
        return None


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)


def _last(path: str) -> str:
    """The property that a path ends at."""
    return re.sub(r"\[\d+\]$", "", path.rsplit(".", 1)[-1]) or "the list"
