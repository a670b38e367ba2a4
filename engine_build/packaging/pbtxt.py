"""Protobuf's text format, written: Triton's model configuration is one message of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Word(str):
    """An enum value or a boolean: written without quotes."""

    __slots__ = ()


Scalar = str | int
Field = tuple[str, "Scalar | Sequence[int] | Sequence[str] | Message"]
Message = Sequence[Field]
"""Fields in order; a repeated message is its field repeated, a tuple a repeated scalar."""
TRUE = Word("true")


def text(message: Message) -> str:
    """The message, one field a line, nested by two spaces."""
    return "".join(f"{line}\n" for line in _lines(message, ""))


def entry(key: str, value: Scalar | Message) -> Message:
    """One entry of a map field."""
    return [("key", key), ("value", value)]


def _lines(message: Message, indent: str) -> Iterable[str]:
    for name, value in message:
        if isinstance(value, str | int):
            yield f"{indent}{name}: {_scalar(value)}"
        elif isinstance(value, tuple):
            inside = ", ".join(_scalar(item) for item in value if isinstance(item, str | int))
            yield f"{indent}{name}: [ {inside} ]" if value else f"{indent}{name}: [ ]"
        else:
            yield f"{indent}{name} {{"
            yield from _lines(value, f"{indent}  ")  # type: ignore[arg-type]
            yield f"{indent}}}"


def _scalar(value: Scalar) -> str:
    if isinstance(value, Word) or not isinstance(value, str):
        return str(value)
    return f'"{"".join(map(_escape, value))}"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode())
