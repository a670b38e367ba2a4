"""One YAML file as plain data, with the place of every key and item, or as faults."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from onboarding.fault import Fault, comma_list, did_you_mean
from onboarding.yaml_text import TooDeepError, compose_yaml

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


LARGEST_FILE_BYTES = 1 << 18
LARGEST_NODE_COUNT = 5_000
LARGEST_DEPTH = 40
SHORTER = "write less in one file, and values without anchors"
LARGEST_INTEGER = (1 << 63) - 1

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value", f"{_TAG}merge"}


def read_document(path: Path, file: str) -> tuple[Document | None, tuple[Fault, ...]]:
    """Return the document of a file, and its faults; `file` is the name that faults carry.

    None: nothing could be read.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            return _unreadable(file, "is a device or a pipe", "make it a readable file")
        with path.open("rb") as handle:
            data = handle.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        return _unreadable(file, f"cannot be read: {error.strerror}", "make it a readable file")
    if len(data) > LARGEST_FILE_BYTES:
        return _unreadable(file, "is larger than 256 KiB", "write less in one file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _unreadable(file, "is not UTF-8 text", "save it as UTF-8", line)
    return parse_document(text, file)


def parse_document(text: str, file: str) -> tuple[Document | None, tuple[Fault, ...]]:
    """Return the document of a YAML text, and its faults."""
    try:
        node = compose_yaml(text)
    except TooDeepError:
        return _unreadable(file, "nests too much", "close the brackets, or write fewer levels")
    except yaml.YAMLError as error:
        return None, (_syntax_fault(error, text, file),)
    except (RecursionError, ValueError):
        way_out = "write plain mappings, lists and values"
        return _unreadable(file, "is not YAML that can be read", way_out)
    if node is None:
        way_out = "write the keys of the schema in schemas/, or remove the file"
        return _unreadable(file, "is empty", way_out, 1)
    if not isinstance(node, yaml.MappingNode):
        what = f"holds {_kind(node)} where a mapping of keys is expected"
        return _unreadable(file, what, "write `key: value` lines", node.start_mark.line + 1)
    reading = _Reading(file=file)
    data = reading.value(node, (), 0, None)
    if reading.is_too_much:
        return None, tuple(reading.faults)
    return Document(file=file, data=data, places=reading.places), tuple(reading.faults)


def _unreadable(
    file: str, what: str, way_out: str, line: int | None = None
) -> tuple[None, tuple[Fault, ...]]:
    return None, (Fault(file=file, line=line, what=what, way_out=way_out),)


def _syntax_fault(error: yaml.YAMLError, text: str, file: str) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = getattr(error, "position", None)
    line = (
        mark.line + 1
        if mark is not None
        else text.count("\n", 0, position) + 1
        if isinstance(position, int)
        else 1
    )
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML")
    return Fault(
        file=file,
        line=line,
        what=f"is not YAML: {problem}",
        way_out="correct the line, or its indentation",
    )


def _kind(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


@dataclass
class _Reading:
    """The data of one composed file; YAML's own constructors raise where a person needs a fault."""

    file: str
    places: dict[KeyPath, Place] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    count: int = 0
    is_too_much: bool = False

    def value(self, node: yaml.Node, path: KeyPath, depth: int, line: int | None) -> Any:
        self.count += 1
        place = self._place(node, line)
        self.places[path] = place
        # Aliases may loop, or multiply without end; both end here.
        if depth > LARGEST_DEPTH or self.count > LARGEST_NODE_COUNT:
            if not self.is_too_much:
                allowed = f"{LARGEST_NODE_COUNT} values, {LARGEST_DEPTH} inside each other"
                self._fault(
                    place,
                    f"nests or repeats too much, or is too long; allowed: {allowed}",
                    way_out=SHORTER,
                )
            self.is_too_much = True
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            items = () if self.is_too_much else node.value
            return [
                self.value(item, (*path, index), depth + 1, None)
                for index, item in enumerate(items)
            ]
        return self._scalar(node, place) if isinstance(node, yaml.ScalarNode) else None

    def _place(self, node: yaml.Node, line: int | None) -> Place:
        text = _printable(node.value) if isinstance(node, yaml.ScalarNode) else None
        return Place(
            file=self.file, line=node.start_mark.line + 1 if line is None else line, text=text
        )

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in () if self.is_too_much else node.value:
            line = key_node.start_mark.line + 1
            place = Place(file=self.file, line=line)
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value.isprintable():
                self._fault(place, "a key is not plain text", way_out="write the key as one word")
            elif key_node.value in lines:
                first = lines[key_node.value]
                self._fault(
                    place,
                    f"duplicate key '{key_node.value}', first written in line {first}",
                    way_out="keep one of the two",
                )
            else:
                lines[key_node.value] = line
                result[key_node.value] = self.value(
                    value_node, (*path, key_node.value), depth + 1, line
                )
        return result

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        text = str(node.value)
        if node.tag in _TEXT_TAGS:
            if not text.isprintable():
                what = "holds a character that is no text: a line break, or one that nobody sees"
                self._fault(place, what, value=ascii(text)[1:-1], way_out="remove it")
                return _printable(text)
            if not text.strip():
                self._fault(
                    place,
                    "is blank",
                    value=f"'{text}'",
                    way_out="write something, or remove the key",
                )
            return text
        try:
            return _plain(node, text)
        except AnotherBaseError as error:
            plain = f"{text.lstrip('0').replace(':', '')} without leading zeros"
            if ":" in text:
                plain = "the number of seconds or minutes in plain digits"
            way_out = f"write {plain}, or in quotes where text is meant"
            self._fault(place, f"YAML reads {text} as {error}", value=text, way_out=way_out)
            return None
        except (ValueError, KeyError, OverflowError):
            kind = node.tag.removeprefix(_TAG)
            self._fault(
                place,
                f"is not a usable value of the kind '{kind}'",
                value=place.text,
                way_out="write it plainly, or in quotes",
            )
            return None

    def _fault(self, place: Place, what: str, *, way_out: str, value: object = None) -> None:
        self.faults.append(place.fault(what, way_out=way_out, value=value))


_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


def _plain(node: yaml.ScalarNode, text: str) -> bool | int | float | None:
    if node.tag == f"{_TAG}null":
        return None
    if node.tag == f"{_TAG}bool":
        return yaml.constructor.SafeConstructor.bool_values[text.lower()]
    if node.tag == f"{_TAG}int":
        _refuse_another_base(text)
        number: int = _CONSTRUCTOR.construct_yaml_int(node)
        if abs(number) > LARGEST_INTEGER:
            raise ValueError(text)
        return number
    if node.tag == f"{_TAG}float":
        _refuse_another_base(text)
        value: float = _CONSTRUCTOR.construct_yaml_float(node)
        if not math.isfinite(value):
            raise ValueError(text)
        return value + 0.0  # -0.0 is 0.0
    raise ValueError(text)


class AnotherBaseError(ValueError):
    """A number that YAML 1.1 reads to the base 8 or 60; the message is what YAML reads."""


def _refuse_another_base(text: str) -> None:
    if ":" in text:
        raise AnotherBaseError(
            f"{_CONSTRUCTOR.construct_yaml_float(yaml.ScalarNode('', text)):g}, a number to "
            "the base 60"
        )
    if _OCTAL.fullmatch(text):
        raise AnotherBaseError(f"{int(text.replace('_', ''), 8)}, a number to the base 8")


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        c if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff") else "?" for c in text
    )
