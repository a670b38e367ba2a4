"""Several models in one archive: what in a model file asks for them, and the fault that it gets.

An archive holds one network. docs/decisions says why, and what several would take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from onboarding.document import Document, KeyPath
from onboarding.fault import Fault
from onboarding.values import Task

TASKS = ("bls", "ensemble", "pipeline")
KEYS = ("bls", "ensemble", "ensemble_scheduling", "models", "pipeline", "steps")
UNUSED = (("task",), ("source",), ("engine",), ("accuracy",))
"""What a file of such a task has not, which is no fault of its own."""
WAY_OUT = (
    "merge the networks into one ONNX file (docs/servers.md, Several models), or give each its own "
    "file and endpoint and call one after the other"
)


def without_composition(
    spec_type: type[BaseModel], document: Document
) -> tuple[Document, Fault | None]:
    """Return a document without the keys that name several models, and the fault where it has some.

    It is one fault, however many keys there are.
    """
    paths = list(_composition(document)) if "task" in spec_type.model_fields else []
    if not paths:
        return document, None
    place = document.at(*paths[0])
    fault = place.fault(
        f"'{'.'.join(map(str, paths[0]))}' asks for several models in one archive, which holds one",
        value=place.text,
        allowed=f"a task of one network: {', '.join(get_args(Task))}",
        way_out=WAY_OUT,
    )
    keys = [path for path in paths if path != ("task",)]
    return document.with_renamed_keys(dict.fromkeys(keys)), fault


def follows_from_composition(error: Any) -> bool:
    """Return True for a pydantic error that every file with `task: ensemble` has."""
    return tuple(error["loc"]) in UNUSED and error["type"] in ("missing", "literal_error")


def _composition(document: Document) -> Iterator[KeyPath]:
    task, serving = document.data.get("task"), document.data.get("serving")
    if isinstance(task, str) and task in TASKS:
        yield ("task",)
    yield from ((key,) for key in KEYS if key in document.data)
    if isinstance(serving, dict):
        yield from (("serving", key) for key in KEYS if key in serving)
