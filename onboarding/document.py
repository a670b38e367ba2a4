"""One YAML file as plain data, with the place of every key and item."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onboarding.fault import Fault, comma_list, did_you_mean

KeyPath = tuple[str | int, ...]


def key_path(path: str | KeyPath) -> KeyPath:
    """Return a path of its text, as faults write it: engine.optimization_profiles[0].batch."""
    if not isinstance(path, str):
        return path
    steps = re.findall(r"[^.\[\]]+", path)
    return tuple(int(step) if step.isdigit() else step for step in steps)


def path_text(path: str | KeyPath) -> str:
    """Return a path as a person writes it: engine.optimization_profiles[0].batch."""
    if isinstance(path, str):
        return path
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a key or item stands, and the text of its value when that is a scalar."""

    file: str
    line: int
    text: str | None = None

    def fault(
        self, what: str, *, way_out: str, value: object = None, allowed: str | None = None
    ) -> Fault:
        """A fault at this place."""
        given = None if value is None else _short(str(value))
        return Fault(
            file=self.file,
            line=self.line,
            what=_short(what, 400),
            value=given,
            allowed=allowed,
            way_out=way_out,
        )

    def unknown(
        self, what: str, name: str, known: Iterable[str], otherwise: str, *, shown: int = 12
    ) -> Fault:
        """A fault of a name that is none of those known."""
        names = tuple(known)
        return self.fault(
            what,
            value=name,
            allowed=comma_list(names, shown),
            way_out=did_you_mean(name, names, otherwise),
        )


@dataclass(frozen=True, kw_only=True)
class Document:
    """A mapping of plain data; the place of the empty path is the mapping's own."""

    file: str
    data: Mapping[str, Any]
    places: Mapping[KeyPath, Place]

    def at(self, *path: str | int) -> Place:
        """The place of a path, or of its nearest parent that is written down."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]

    def at_change(self, *paths: str | KeyPath) -> Place:
        """Return the place of the first value that an environment overrides, else of the first."""
        places = [self.at(*key_path(path)) for path in paths]
        return next((place for place in places if place.file != self.file), places[0])

    def part(self, *path: str | int) -> Document:
        """The mapping at a path, as a document of its own."""
        data: Any = self.data
        for step in path:
            data = data[step]
        places = {
            key[len(path) :]: place
            for key, place in self.places.items()
            if key[: len(path)] == path
        }
        return Document(file=self.file, data=data, places=places)

    def with_overrides(self, override: Document) -> Document:
        """Return this document with another deep-merged onto it.

        Mappings merge, anything else is replaced; places follow the values.
        """
        places = dict(self.places)
        data = _merge(self.data, override, (), places)
        return Document(file=self.file, data=data, places=places)

    def without(self, paths: Iterable[KeyPath]) -> Document:
        """Return this document without some keys; their places stay."""
        data: Any = copy.deepcopy(self.data)
        for *parents, last in paths:
            mapping: Any = data
            for step in parents:
                mapping = mapping[step]
            del mapping[last]
        return Document(file=self.file, data=data, places=self.places)


def _merge(
    base: Mapping[str, Any], override: Document, path: KeyPath, places: dict[KeyPath, Place]
) -> dict[str, Any]:
    result = dict(base)
    for key, value in override.part(*path).data.items():
        here = (*path, key)
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            result[key] = _merge(base[key], override, here, places)
        else:
            result[key] = value
            _replace_places(places, override, here)
    return result


def _replace_places(places: dict[KeyPath, Place], override: Document, path: KeyPath) -> None:
    for key in [key for key in places if key[: len(path)] == path]:
        del places[key]
    places.update(
        {key: place for key, place in override.places.items() if key[: len(path)] == path}
    )


def _short(text: str, longest: int = 120) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
