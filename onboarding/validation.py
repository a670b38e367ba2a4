"""A document against a spec: its valid sections, and a fault for everything else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError, create_model

from onboarding.document import Document, KeyPath, Place, key_path, path_text
from onboarding.ensemble_spec import OF_STEPS, TASK, EnsembleSpec
from onboarding.fault import Fault, sorted_faults
from onboarding.model_spec import ModelSpec
from onboarding.nearest import nearest
from onboarding.repository_spec import OF_NETWORKS, RepositorySpec, has_repository
from onboarding.spec_faults import known_keys, spec_fault, written_path
from onboarding.text_generation import spec as text_generation
from onboarding.values import Value

SpecT = TypeVar("SpecT", bound=Value)
SpecT_co = TypeVar("SpecT_co", bound=Value, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Checked(Generic[SpecT_co]):
    """A document and as much of its spec as is valid.

    `spec` holds only the sections (top-level fields) named in `sections`, and raises SectionError
    for another: a rule that reads it ends, and no broken section hides a fault of another.
    """

    document: Document
    spec: SpecT_co
    sections: frozenset[str]
    faults: tuple[Fault, ...]

    @property
    def is_valid(self) -> bool:
        """True when the whole document is a spec."""
        return not self.faults

    def has(self, *sections: str) -> bool:
        """True when these sections are valid."""
        return self.sections.issuperset(sections)

    def at(self, *paths: str | KeyPath) -> Place:
        """Return the place of the first of some keys that an environment overrides, or the first.

        A path is written as in faults: engine.optimization_profiles[0].batch.
        """
        return self.document.at_change(*paths)

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


def validate(spec_type: type[SpecT], document: Document) -> Checked[SpecT]:
    """Validate a document.

    An unknown key is left out, and where it resembles one that is needed, that is not missing. A
    model file with `task: ensemble` has the spec of one, and so have one with `task:
    text-generation` and one whose source is a Triton repository.
    """
    if spec_type is ModelSpec and document.data.get("task") == TASK:
        why = "an ensemble has no '{}': each of its models has one, in a file of its own"
        return cast(Checked[SpecT], _without(EnsembleSpec, document, OF_STEPS, why))
    if spec_type is ModelSpec and has_repository(document.data):
        why = "a Triton repository has no '{}': nothing is compiled of it, and no accuracy measured"
        return cast(Checked[SpecT], _without(RepositorySpec, document, OF_NETWORKS, why))
    if spec_type is ModelSpec and document.data.get("task") == text_generation.TASK:
        return cast(Checked[SpecT], _validated(text_generation.TextGenerationSpec, document))
    return _validated(spec_type, document)


def _without(
    spec_type: type[SpecT], document: Document, unread: frozenset[str], why: str
) -> Checked[SpecT]:
    """Validate a document whose kind of model has no sections of some names."""
    given = sorted(unread & document.data.keys())
    faults = [document.at(key).fault(why.format(key), way_out="take it out") for key in given]
    own = document.without([(key,) for key in given])
    checked = _validated(spec_type, own)
    return replace(
        checked,
        sections=checked.sections - unread,
        faults=sorted_faults([*faults, *checked.faults]),
    )


def _validated(spec_type: type[SpecT], document: Document) -> Checked[SpecT]:
    try:
        spec = _whole(spec_type, document.data)
    except ValidationError:
        return _checked_by_section(spec_type, document)
    return Checked(
        document=document, spec=spec, sections=frozenset(spec_type.model_fields), faults=()
    )


def _checked_by_section(spec_type: type[SpecT], document: Document) -> Checked[SpecT]:
    errors = _errors(spec_type, document.data)
    unknown = [written_path(item["loc"]) for item in errors if item["type"] == "extra_forbidden"]
    meant = {
        (*path[:-1], nearest(str(path[-1]), known_keys(spec_type, path[:-1]))) for path in unknown
    }
    faults = [
        spec_fault(spec_type, document, error)
        for error in errors
        if error["type"] != "missing" or written_path(error["loc"]) not in meant
    ]
    document = document.without(unknown)
    sections = _valid_sections(spec_type, document.data)
    spec = cast(SpecT, spec_type.model_construct(_fields_set=set(sections), **sections))
    for name in spec_type.model_fields.keys() - sections.keys():
        spec.__dict__.pop(name, None)
    return Checked(
        document=document, spec=spec, sections=frozenset(sections), faults=sorted_faults(faults)
    )


def _whole(spec_type: type[SpecT], data: Mapping[str, Any]) -> SpecT:
    # YAML has no tuples, so lists are read as JSON would be; everything else stays strict.
    return spec_type.model_validate_json(json.dumps(data))


def _errors(spec_type: type[Value], data: Mapping[str, Any]) -> list[Any]:
    try:
        _whole(spec_type, data)
    except ValidationError as error:
        return _without_echoes(error.errors(include_url=False))
    return []


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


def _valid_sections(spec_type: type[Value], data: Mapping[str, Any]) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for name in spec_type.model_fields:
        given = {name: data[name]} if name in data else {}
        try:
            section = _section_type(spec_type, name).model_validate_json(json.dumps(given))
        except ValidationError:
            continue
        sections[name] = getattr(section, name)
    return sections


@cache
def _section_type(spec_type: type[Value], name: str) -> type[Value]:
    field = spec_type.model_fields[name]
    section: type[Value] = create_model(
        f"{spec_type.__name__}_{name}", __base__=Value, **{name: (field.annotation, field)}
    )  # type: ignore[call-overload]
    return section
