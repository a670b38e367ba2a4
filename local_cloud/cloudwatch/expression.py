"""Metric math expressions: read into a tree, and computed over metrics; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from local_cloud.cloudwatch.series import (
    CHANGES,
    OPERATORS,
    REDUCTIONS,
    MathError,
    Series,
    Value,
    changes,
    choose,
    combine,
    fill_gaps,
    map_series,
    reduce_series,
)

TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<text>'[^']*'|"[^"]*")|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<sign><=|>=|==|!=|&&|\|\||[-+*/^<>(),\[\]]))"""
)
WORDS = {"&&": "AND", "||": "OR"}
LEVELS: tuple[tuple[str, ...], ...] = (
    ("OR",),
    ("AND",),
    ("<", "<=", ">", ">=", "==", "!="),
    ("+", "-"),
    ("*", "/"),
    ("^",),
)
"""Operators from the loosest to the tightest."""
Tree = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """Metrics by id, the starts of periods, PERIOD in CloudWatch's seconds, and SEARCH."""

    metrics: Mapping[str, Value]
    times: Sequence[float] = ()
    period: float = 60.0
    search: Callable[[str, str, float], list[Series]] = field(
        default=lambda text, statistic, period: []
    )


def evaluate(text: str, grounds: Grounds) -> Value:
    """An expression's value. Raises MathError."""
    return _value(parse(text), grounds)


def parse(text: str) -> Tree:
    """An expression as a tree. Raises MathError where it cannot be read."""
    reader = _Reader(_tokens(text))
    tree = reader.level(0)
    if reader.ahead[0] != "end":
        raise MathError(f"unexpected {reader.ahead[1]!r} in {text!r}")
    return tree


def referenced_ids(tree: Tree) -> frozenset[str]:
    """The ids that an expression refers to; `METRICS` where it refers to all of them."""
    if tree[0] == "id":
        return frozenset((str(tree[1]),))
    if tree[:2] == ("call", "METRICS"):
        return frozenset(("METRICS",))
    return frozenset(
        name for part in tree[1:] if isinstance(part, tuple) for name in referenced_ids(part)
    )


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise MathError(f"unexpected {text[at:].strip()[0]!r} in {text!r}")
        word = match[match.lastgroup]
        kind = "sign" if word in ("AND", "OR") else match.lastgroup
        tokens.append((kind, WORDS.get(word, word)))
        at = match.end()
    return [*tokens, ("end", "the end")]


class _Reader:
    """Reads tokens one after the other."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens, self._at = tokens, 0

    @property
    def ahead(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def level(self, number: int) -> Tree:
        """One level of operators and everything tighter, from the left."""
        if number == len(LEVELS):
            return self._unary()
        tree = self.level(number + 1)
        while self.ahead[0] == "sign" and self.ahead[1] in LEVELS[number]:
            sign = self._next()[1]
            tree = ("operator", sign, tree, self.level(number + 1))
        return tree

    def _unary(self) -> Tree:
        if self.ahead == ("sign", "-"):
            self._next()
            return ("operator", "-", ("number", 0.0), self._unary())
        return self._primary()

    def _primary(self) -> Tree:
        kind, word = self._next()
        if kind == "number":
            return ("number", float(word))
        if kind == "text":
            return ("text", word[1:-1])
        if kind == "name":
            return ("call", word, *self._list(")")) if self._passed("(") else ("id", word)
        if word == "(":
            tree = self.level(0)
            self._expect(")")
            return tree
        if word == "[":
            return ("list", *self._list("]"))
        raise MathError(f"unexpected {word!r}")

    def _list(self, end: str) -> list[Tree]:
        found: list[Tree] = []
        while not self._passed(end):
            found.append(self.level(0))
            if self.ahead != ("sign", end):
                self._expect(",")
        return found

    def _next(self) -> tuple[str, str]:
        token = self.ahead
        if token[0] == "end":
            raise MathError("the expression ends too early")
        self._at += 1
        return token

    def _passed(self, sign: str) -> bool:
        is_there = self.ahead == ("sign", sign)
        self._at += is_there
        return is_there

    def _expect(self, sign: str) -> None:
        if not self._passed(sign):
            raise MathError(f"expected {sign!r}, found {self.ahead[1]!r}")


def _value(tree: Tree, grounds: Grounds) -> Value:
    match tree:
        case ("number", float(number)):
            return number
        case ("id", str(name)):
            if name not in grounds.metrics:
                known = ", ".join(sorted(grounds.metrics)) or "none"
                raise MathError(f"unknown metric id {name!r}, known: {known}")
            return grounds.metrics[name]
        case ("operator", str(sign), tuple(left), tuple(right)):
            return combine(OPERATORS[sign], _value(left, grounds), _value(right, grounds))
        case ("list", *items):
            return [_series(_value(item, grounds)) for item in items if isinstance(item, tuple)]
        case ("call", str(name), *arguments):
            trees = [argument for argument in arguments if isinstance(argument, tuple)]
            return _call_function(name, trees, grounds)
    raise MathError(f"{tree[1]!r} is no number and no metric")


def _series(value: Value) -> Series:
    if isinstance(value, Mapping):
        return value
    raise MathError("a list takes time series only")


def _call_function(name: str, arguments: Sequence[Tree], grounds: Grounds) -> Value:
    if name in SPECIAL:
        return SPECIAL[name](arguments, grounds)
    values = [_value(argument, grounds) for argument in arguments]
    if name in REDUCTIONS and len(values) == 1:
        return reduce_series(REDUCTIONS[name], values[0])
    if name in CHANGES and len(values) == 1:
        return map_series(CHANGES[name], values[0])
    if name in ("DIFF", "RATE") and len(values) == 1:
        return changes(values[0], name == "RATE")
    if name == "IF" and len(values) in (2, 3):
        return choose(values[0], values[1], values[2] if len(values) == 3 else {})
    if name == "TIME_SERIES" and len(values) == 1 and isinstance(values[0], float):
        return dict.fromkeys(grounds.times, values[0])
    raise MathError(
        f"the local cloud has no metric math function {name} of {len(values)} arguments"
    )


def _fill(arguments: Sequence[Tree], grounds: Grounds) -> Value:
    if len(arguments) != 2:
        raise MathError("FILL takes a time series and what to fill it with")
    value, tree = _value(arguments[0], grounds), arguments[1]
    is_word = tree in (("id", "REPEAT"), ("id", "LINEAR"))
    fill = str(tree[1]) if is_word else _value(tree, grounds)
    if not isinstance(fill, str | float):
        raise MathError("FILL fills with a number, REPEAT or LINEAR")
    return fill_gaps(value, fill, grounds.times)


def _metrics(arguments: Sequence[Tree], grounds: Grounds) -> Value:
    part = str(arguments[0][1]) if arguments else ""
    return [
        value
        for name, value in grounds.metrics.items()
        if part in name and isinstance(value, Mapping)
    ]


def _search(arguments: Sequence[Tree], grounds: Grounds) -> Value:
    kinds = [argument[0] for argument in arguments]
    if kinds not in (["text", "text"], ["text", "text", "number"]):
        raise MathError("SEARCH takes a search text, a statistic and a period")
    period = float(str(arguments[2][1])) if len(arguments) == 3 else grounds.period
    return grounds.search(str(arguments[0][1]), str(arguments[1][1]), period)


def _remove_empty(arguments: Sequence[Tree], grounds: Grounds) -> Value:
    value = _value(arguments[0], grounds)
    return [item for item in value if item] if isinstance(value, list) else value


SPECIAL: dict[str, Callable[[Sequence[Tree], Grounds], Value]] = {
    "FILL": _fill,
    "METRICS": _metrics,
    "SEARCH": _search,
    "REMOVE_EMPTY": _remove_empty,
    "PERIOD": lambda arguments, grounds: grounds.period,
}
