"""A document against its spec: the spec of a file, or every fault of its form, in our words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, get_args

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo

from onboarding.document import Document, KeyPath, Place, key_path, path_text
from onboarding.fault import Fault, comma_list, nearest
from onboarding.model_spec import (
    ENSEMBLE,
    OF_NETWORKS,
    OF_STEPS,
    REPOSITORY,
    EnsembleSpec,
    ModelSpec,
    RepositorySpec,
)
from onboarding.text_generation import spec as text_generation
from onboarding.values import JOINED, OWN, SHARED, Value

SpecT = TypeVar("SpecT", bound=Value)
SpecT_co = TypeVar("SpecT_co", bound=Value, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Checked(Generic[SpecT_co]):
    """A document and its spec."""

    document: Document
    spec: SpecT_co

    def at(self, *paths: str | KeyPath) -> Place:
        """Return the place of the first of some keys that an environment overrides, or the first.

        A path is written as in faults: engine.optimization_profiles[0].batch.
        """
        places = [self.document.at(*key_path(path)) for path in paths]
        return next((place for place in places if place.file != self.document.file), places[0])

    def fault(
        self,
        path: str | KeyPath,
        what: str,
        *,
        way_out: str,
        value: object = None,
        allowed: str | None = None,
        beside: Sequence[str | KeyPath] = (),
    ) -> Fault:
        """Return the fault of a key: "'key' what", with its value unless another is given.

        It lies at the key, or at the first of those `beside` it that an environment overrides.
        """
        given = _value_text(self.spec, key_path(path)) if value is None else value
        return self.at(path, *beside).fault(
            f"'{path_text(path)}' {what}", value=given, allowed=allowed, way_out=way_out
        )


def _value_text(value: Any, path: KeyPath) -> str | None:
    """Return the value at a path as a file writes it; None of a mapping, or of none."""
    for step in path:
        value = getattr(value, str(step)) if isinstance(value, Value) else value[step]
    if value is None or isinstance(value, Value | dict):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        is_plain = not any(isinstance(item, Value) for item in value)
        return str(list(value)) if value and is_plain else None
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def validate(
    spec_type: type[SpecT], document: Document
) -> tuple[Checked[SpecT] | None, tuple[Fault, ...]]:
    """Return a document with its spec, or None and the faults of its form.

    A model file with `task: ensemble` has the spec of one, and so have one with `task:
    text-generation` and one whose source is a Triton repository.
    """
    kind = _kind(document) if spec_type is ModelSpec else spec_type
    absent, why = _ABSENT.get(kind, (frozenset(), ""))
    given = sorted(absent & document.data.keys())
    faults = [document.at(key).fault(why.format(key), way_out="take it out") for key in given]
    own = document.without([(key,) for key in given])
    try:
        # YAML has no tuples, so lists are read as JSON would be; everything else stays strict.
        spec = cast(SpecT, kind.model_validate_json(json.dumps(own.data)))
    except ValidationError as error:
        return None, (*faults, *_form_faults(kind, own, error))
    return None if faults else Checked(document=own, spec=spec), tuple(faults)


_ABSENT: Mapping[type[Value], tuple[frozenset[str], str]] = {
    EnsembleSpec: (
        OF_STEPS,
        "an ensemble has no '{}': each of its models has one, in a file of its own",
    ),
    RepositorySpec: (
        OF_NETWORKS,
        "a Triton repository has no '{}': nothing is compiled of it, and no accuracy measured",
    ),
}
"""Sections of a model file that a kind has not, and why."""


def _kind(document: Document) -> type[Value]:
    """Return the spec of a model file, by its task and its source."""
    task, source = document.data.get("task"), document.data.get("source")
    if task == ENSEMBLE:
        return EnsembleSpec
    if isinstance(source, Mapping) and REPOSITORY in source:
        return RepositorySpec
    return text_generation.TextGenerationSpec if task == text_generation.TASK else ModelSpec


def _form_faults(spec_type: type[Value], document: Document, error: ValidationError) -> list[Fault]:
    """Return the faults of pydantic's errors.

    Where an unknown key resembles one that is needed, that is not missing.
    """
    errors = _without_echoes(error.errors(include_url=False))
    unknown = [written_path(item["loc"]) for item in errors if item["type"] == "extra_forbidden"]
    meant = {
        (*path[:-1], nearest(str(path[-1]), known_keys(spec_type, path[:-1]))) for path in unknown
    }
    return [
        spec_fault(spec_type, document, item)
        for item in errors
        if item["type"] != "missing" or written_path(item["loc"]) not in meant
    ]


def _without_echoes(errors: Sequence[Any]) -> list[Any]:
    """Drop the length error of a list whose items are refused themselves."""
    return [
        error
        for error in errors
        if not (
            error["type"] == "too_short"
            and any(
                other["loc"][: len(error["loc"])] == error["loc"] != other["loc"]
                for other in errors
            )
        )
    ]


_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
}


def spec_fault(spec_type: type[Value], document: Document, error: Any) -> Fault:
    """The fault for one pydantic error of one document."""
    path = written_path(error["loc"])
    if error["type"] == "extra_forbidden":
        return _unknown_key(spec_type, document, error["loc"])
    if error["type"] == "missing":
        return _missing(spec_type, document, path)
    return _unfit_value(spec_type, document, path, error)


def written_path(loc: tuple[str | int, ...]) -> KeyPath:
    """A pydantic location as a path in the file: without the tags of unions."""
    return tuple(
        step
        for index, step in enumerate(loc)
        if not (index == 1 and loc[0] == "endpoint" and step in (OWN, SHARED, JOINED))
    )


def known_keys(spec_type: type[Value], path: KeyPath) -> tuple[str, ...]:
    """The keys that a spec knows at a path."""
    keys = dict.fromkeys(key for model in _models_at(spec_type, path) for key in model.model_fields)
    absent, _ = _ABSENT.get(spec_type, (frozenset(), ""))
    return tuple(key for key in keys if path or key not in absent)


def description(spec_type: type[Value], path: KeyPath) -> str | None:
    """What the spec says of the field at a path, or of the field that holds the item at a path."""
    return next((field.description for field in _fields_at(spec_type, path)), None)


def _fields_at(spec_type: type[Value], path: KeyPath) -> list[FieldInfo]:
    while path and isinstance(path[-1], int):
        path = path[:-1]
    *parents, name = path or ("",)
    models = _models_at(spec_type, tuple(parents))
    return [model.model_fields[str(name)] for model in models if name in model.model_fields]


def _models_at(spec_type: type[Value], path: KeyPath) -> list[type[BaseModel]]:
    models: list[type[BaseModel]] = [spec_type]
    for step in path:
        if isinstance(step, str):
            annotations = [
                model.model_fields[step].annotation
                for model in models
                if step in model.model_fields
            ]
            models = [model for annotation in annotations for model in _models_in(annotation)]
    return models


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


_OF_ANOTHER_FORM = {
    JOINED: "remove it: a model that joins another takes it from there",
    OWN: "remove it, or name by `joins:` the model that this one answers beside",
}


def _unknown_key(spec_type: type[Value], document: Document, loc: tuple[str | int, ...]) -> Fault:
    path = written_path(loc)
    known = known_keys(spec_type, path[:-1])
    if path[-1] in known:
        form = str(loc[1])
        allowed, way_out = comma_list(_keys_of_form(spec_type, form), 20), _OF_ANOTHER_FORM[form]
        return document.at(*path).fault(
            f"'{path_text(path)}' does not belong here", allowed=allowed, way_out=way_out
        )
    match = nearest(str(path[-1]), known)
    way_out = "remove it" if match is None else f"did you mean '{match}'?"
    return document.at(*path).fault(
        f"unknown key '{path_text(path)}'", allowed=comma_list(known, 20), way_out=way_out
    )


def _keys_of_form(spec_type: type[Value], tag: str) -> tuple[str, ...]:
    forms = _forms(spec_type.model_fields["endpoint"].annotation)
    models = [model for form, tags in forms if tag in tags for model in _models_in(form)]
    return tuple(key for model in models for key in model.model_fields)


def _forms(annotation: Any) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield every part of an annotation with the tags that it has."""
    marks = getattr(annotation, "__metadata__", ())
    yield annotation, tuple(mark.tag for mark in marks if isinstance(mark, Tag))
    for argument in get_args(annotation):
        yield from _forms(argument)


def _missing(spec_type: type[Value], document: Document, path: KeyPath) -> Fault:
    if isinstance(path[-1], int):
        return _list_length(document, path[:-1])
    says = description(spec_type, path)
    comment = "" if says is None else f" ({_within_a_sentence(says)})"
    return document.at(*path[:-1]).fault(
        f"key '{path_text(path)}' is missing", way_out=f"add `{path[-1]}:`{comment}"
    )


def _within_a_sentence(says: str) -> str:
    """Without its first capital, unless that begins an abbreviation such as VPC."""
    return says if says[1:2].isupper() else f"{says[:1].lower()}{says[1:]}"


def _list_length(document: Document, path: KeyPath) -> Fault:
    return document.at(*path).fault(
        f"'{path_text(path)}' is a list of another length",
        allowed="three whole numbers: min, opt, max",
        way_out="write [min, opt, max]",
    )


def _unfit_value(spec_type: type[Value], document: Document, path: KeyPath, error: Any) -> Fault:
    place = document.at(*path)
    kind: str = error["type"]
    context = error.get("ctx", {})
    if kind == "literal_error":
        words = str(context["expected"]).replace(" or ", ", ").split(",")
        return _unknown_word(document, path, tuple(word.strip(" '") for word in words))
    if kind == "too_long" and context["max_length"] == 3:
        return _list_length(document, path)
    if kind == "too_long":
        most, given = context["max_length"], context["actual_length"]
        return place.fault(
            f"'{path_text(path)}' has {given} entries",
            allowed=f"at most {most}",
            way_out="remove the others",
        )
    if kind == "too_short":
        return place.fault(
            f"'{path_text(path)}' is empty",
            allowed=f"at least {context['min_length']}",
            way_out="add one",
        )
    if kind in _KINDS:
        return _wrong_kind(place, path, kind, error["input"])
    says = description(spec_type, path)
    allowed = (
        says
        if kind in ("string_pattern_mismatch", "string_too_long") and says is not None
        else _range(spec_type, path)
        if kind in _BOUNDS
        else str(error["msg"])
    )
    return place.fault(
        f"'{path_text(path)}' is not allowed",
        value=place.text,
        allowed=allowed,
        way_out="change the value",
    )


_EXPONENT = re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+")


def _wrong_kind(place: Place, path: KeyPath, kind: str, given: object) -> Fault:
    expected = _KINDS[kind]
    if kind == "string_type" and isinstance(given, bool | int | float) and place.text is not None:
        what = (
            f"'{path_text(path)}' expects text, and YAML reads {place.text} as {_yaml_kind(given)}"
        )
        return place.fault(what, value=place.text, way_out=f'write it in quotes: "{place.text}"')
    if kind in ("float_type", "int_type") and isinstance(given, str) and _EXPONENT.fullmatch(given):
        what = f"'{path_text(path)}' expects {expected}, and YAML reads {given} as text"
        return place.fault(what, value=given, way_out="write its digits out, without e")
    is_quoted_number = isinstance(given, str) and given.replace(".", "", 1).isdigit()
    way_out = (
        "write it without quotes"
        if is_quoted_number or given in ("true", "false")
        else "correct it"
    )
    value = (
        f"'{place.text}'"
        if isinstance(given, str)
        else place.text
        if place.text
        else _yaml_kind(given)
    )
    return place.fault(f"'{path_text(path)}' expects {expected}", value=value, way_out=way_out)


def _yaml_kind(given: object) -> str:
    kinds: dict[type, str] = {
        bool: "true or false",
        dict: "a mapping",
        list: "a list",
        type(None): "nothing",
    }
    return kinds.get(type(given), "a number")


def _unknown_word(document: Document, path: KeyPath, words: tuple[str, ...]) -> Fault:
    place = document.at(*path)
    match = nearest(place.text or "", words)
    way_out = "use one of these" if match is None else f"did you mean '{match}'?"
    value = place.text if place.text is not None else "no single word"
    return place.fault(
        f"'{path_text(path)}' is not a known word",
        value=value,
        allowed=", ".join(words),
        way_out=way_out,
    )


_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
_LEAST, _MOST = {"ge": "", "gt": "above "}, {"le": "", "lt": "below "}


def _range(spec_type: type[Value], path: KeyPath) -> str:
    """The numbers that a field takes: "1 to 40", "above 0 to 1", "0 or more"."""
    bounds = _bounds(spec_type, path)
    least = [f"{word}{bounds[name]:.10g}" for name, word in _LEAST.items() if name in bounds]
    most = [f"{word}{bounds[name]:.10g}" for name, word in _MOST.items() if name in bounds]
    if least and most:
        return f"{least[0]} to {most[0]}"
    return f"{least[0]} or more" if least else f"{most[0]} or less"


def _bounds(spec_type: type[Value], path: KeyPath) -> dict[str, float]:
    bounds: dict[str, float] = {}
    for field in _fields_at(spec_type, path):
        for constraint in (*field.metadata, *_constraints(field.annotation)):
            for name in (*_LEAST, *_MOST):
                if hasattr(constraint, name):
                    bounds.setdefault(name, getattr(constraint, name))
    return bounds


def _constraints(annotation: Any) -> Iterator[Any]:
    """Yield those of an annotation and of its parts."""
    for extra in getattr(annotation, "__metadata__", ()):
        yield from getattr(extra, "metadata", ())
    for argument in get_args(annotation):
        yield from _constraints(argument)
