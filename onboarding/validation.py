"""A document against its spec: the spec of a file, or every fault of its form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError

from onboarding.document import Document, KeyPath, Place, key_path, path_text
from onboarding.ensemble_spec import OF_STEPS, TASK, EnsembleSpec
from onboarding.fault import Fault
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
    """A document and its spec."""

    document: Document
    spec: SpecT_co

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


def validate(
    spec_type: type[SpecT], document: Document
) -> tuple[Checked[SpecT] | None, tuple[Fault, ...]]:
    """Return a document with its spec, or None and the faults of its form.

    A model file with `task: ensemble` has the spec of one, and so have one with `task:
    text-generation` and one whose source is a Triton repository.
    """
    kind, unread, why = _kind(document) if spec_type is ModelSpec else (spec_type, frozenset(), "")
    given = sorted(unread & document.data.keys())
    faults = [document.at(key).fault(why.format(key), way_out="take it out") for key in given]
    own = document.without([(key,) for key in given])
    try:
        # YAML has no tuples, so lists are read as JSON would be; everything else stays strict.
        spec = cast(SpecT, kind.model_validate_json(json.dumps(own.data)))
    except ValidationError as error:
        return None, (*faults, *_form_faults(kind, own, error))
    return None if faults else Checked(document=own, spec=spec), tuple(faults)


def _kind(document: Document) -> tuple[type[Value], frozenset[str], str]:
    """Return the spec of a model file, keys that are not of it, and why one is not."""
    if document.data.get("task") == TASK:
        why = "an ensemble has no '{}': each of its models has one, in a file of its own"
        return EnsembleSpec, OF_STEPS, why
    if has_repository(document.data):
        why = "a Triton repository has no '{}': nothing is compiled of it, and no accuracy measured"
        return RepositorySpec, OF_NETWORKS, why
    if document.data.get("task") == text_generation.TASK:
        return text_generation.TextGenerationSpec, frozenset(), ""
    return ModelSpec, frozenset(), ""


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
