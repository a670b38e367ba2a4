"""A reader of Triton's `config.pbtxt`: protobuf's text format, with the line of every field.

What fields there are follows from Triton's own ModelConfig, as data/model_configuration.yaml has
it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from onboarding.yaml_text import load_yaml

LARGEST_DEPTH = 40
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>[-+]?(?:inf\b|nan\b|[.0-9][A-Za-z0-9.]*(?:(?<=[eE])[-+][0-9]+)?))
    |(?P<mark>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)")
_CLOSING = {"{": "}", "<": ">"}
_KINDS = {"string": "text", "int": "number", "float": "number", "bool": "word"}
_BOOLEANS = ("true", "false", "True", "False", "t", "f")


class ConfigurationFault(ValueError):
    """A text is no model configuration; the message says why, `line` where."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True, kw_only=True)
class ConfigurationField:
    """One field: a scalar's text, or the fields of a message; a list is its field repeated."""

    name: str
    line: int
    kind: str
    """text, word, number or message."""
    value: str = ""
    fields: tuple[ConfigurationField, ...] = ()

    def all(self, name: str) -> tuple[ConfigurationField, ...]:
        """Return the fields of a message by name."""
        return tuple(field for field in self.fields if field.name == name)

    def one(self, name: str) -> ConfigurationField | None:
        """Return the last field of a name, which counts; None where there is none."""
        return next(reversed(self.all(name)), None)

    def text(self, name: str) -> str:
        """Return a scalar's text; empty where there is none."""
        field = self.one(name)
        return "" if field is None else field.value


def read_configuration(text: str) -> ConfigurationField:
    """Return a model configuration as one message. Raises ConfigurationFault."""
    reading = _Reading(tuple(_tokens(text)))
    return ConfigurationField(name="", line=1, kind="message", fields=reading.fields("", 0))


def field_faults(
    message: ConfigurationField, kind: str = "ModelConfig"
) -> Iterator[tuple[int, str, str]]:
    """Yield line, fault and what is allowed of fields that Triton's ModelConfig has not so."""
    known: Mapping[str, str] = _schema()["messages"][kind]
    for field in message.fields:
        wanted = known.get(field.name)
        if wanted is None:
            yield field.line, f"{kind} has no field {field.name}", ", ".join(known)
        elif wanted in _schema()["messages"]:
            if field.kind != "message":
                yield field.line, f"{field.name} is no message", f"{field.name} {{ … }}"
            yield from field_faults(field, wanted)
        elif not _is_of_kind(field, wanted):
            words = _schema()["enums"].get(wanted)
            allowed = wanted if words is None else ", ".join(words)
            yield field.line, f"{field.name} is {field.value or 'a message'}", allowed


def _is_of_kind(field: ConfigurationField, wanted: str) -> bool:
    words = _schema()["enums"].get(wanted)
    if words is not None:
        return field.value in words or field.value.isdigit()
    if wanted == "bool":
        return field.value in (*_BOOLEANS, "0", "1") and field.kind in ("word", "number")
    if field.kind != _KINDS[wanted]:
        return False
    return wanted != "int" or _WHOLE_NUMBER.fullmatch(field.value) is not None


@cache
def _schema() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    source = resources.files("onboarding.data").joinpath("model_configuration.yaml")
    schema: Mapping[str, Mapping[str, Mapping[str, str]]] = load_yaml(source.read_text("utf-8"))
    return schema


_Token = tuple[str, str, int]
"""Kind, text, line."""


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigurationFault(line, f"{text[position : position + 20].split()[0]!r} is none")
        if match.lastgroup != "space":
            yield str(match.lastgroup), match.group(), line
        line += match.group().count("\n")
        position = match.end()
    yield "end", "", line


class _Reading:
    """Tokens, read from the first to the last."""

    def __init__(self, tokens: tuple[_Token, ...]) -> None:
        self._tokens, self._next = tokens, 0

    def fields(self, closing: str, depth: int) -> tuple[ConfigurationField, ...]:
        """Return the fields up to a closing mark, which is read too; empty: to the end."""
        found: list[ConfigurationField] = []
        while not self._has(closing):
            kind, name, line = self._read()
            if kind != "word" or depth > LARGEST_DEPTH:
                raise ConfigurationFault(line, f"{name or 'the end'!r} stands where a field must")
            has_colon = self._has(":")
            if self._has("["):
                while not self._has("]"):
                    found.append(self._value(name, has_colon=has_colon, depth=depth))
                    self._has(",")
            else:
                found.append(self._value(name, has_colon=has_colon, depth=depth))
            if not self._has(","):
                self._has(";")
        return tuple(found)

    def _value(self, name: str, *, has_colon: bool, depth: int) -> ConfigurationField:
        kind, text, at = self._read()
        if text in _CLOSING:
            fields = self.fields(_CLOSING[text], depth + 1)
            return ConfigurationField(name=name, line=at, kind="message", fields=fields)
        if not has_colon or kind not in ("text", "word", "number"):
            raise ConfigurationFault(at, f"{text or 'the end'!r} stands where {name} has its value")
        value = ast.literal_eval(text) if kind == "text" else text
        while kind == "text" and self._tokens[self._next][0] == "text":
            value += ast.literal_eval(self._read()[1])
        return ConfigurationField(name=name, line=at, kind=kind, value=value)

    def _has(self, mark: str) -> bool:
        """Read a mark where it is the next token; empty is the end."""
        kind, text, _ = self._tokens[self._next]
        if text != mark or kind not in ("mark", "end"):
            return False
        self._next += kind == "mark"
        return True

    def _read(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token[0] != "end"
        return token
