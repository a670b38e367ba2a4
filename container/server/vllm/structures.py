"""Schemas, expressions and tools of a request, bounded by the size of the grammar that they become.

vLLM compiles each to an automaton in the process that answers everybody: an array of 10^9 items
took 20 GB of it, and a grammar of its own that recurses answered 500.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from container.server.types import RequestFault

MOST_BYTES, MOST_WEIGHT = 1 << 16, 100_000
"""Of one request: bytes of its JSON, and nodes with all their repetitions written out."""
DEEPEST = 32
COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
          "minContains", "maxContains")  # fmt: skip
REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
UNTAKEN = ("grammar", "structural_tag")
"""Grammars in languages of their own, whose size cannot be seen here."""


def check_structures(document: Mapping[str, Any]) -> None:
    """Raise RequestFault for a request whose grammar would be too large, or could not be one."""
    structured = document.get("structured_outputs")
    if structured is not None and not isinstance(structured, dict):
        raise RequestFault("'structured_outputs' must be an object.")
    for key in UNTAKEN:
        if structured is not None and structured.get(key) is not None:
            raise RequestFault(f"'structured_outputs' takes json, regex and choice, not {key!r}.")
    form = document.get("response_format")
    if isinstance(form, dict) and form.get("type") in UNTAKEN:
        raise RequestFault(f"'response_format' of type {form['type']!r} is not taken here.")
    for key in ("structured_outputs", "response_format", "tools"):
        value = document.get(key)
        if value is None:
            continue
        if len(json.dumps(value)) > MOST_BYTES:
            raise RequestFault(f"{key!r} has more than {MOST_BYTES} bytes.")
        if _weight(value, DEEPEST) > MOST_WEIGHT:
            raise RequestFault(
                f"{key!r} becomes a grammar of more than {MOST_WEIGHT} nodes; lower its counts of "
                "items, of characters or of repetitions."
            )


def _weight(value: Any, depth: int, key: str = "") -> int:
    """Return the nodes of a value, those within repetitions as often as they may repeat."""
    if depth == 0:
        raise RequestFault(f"A schema is nested deeper than {DEEPEST}.")
    if isinstance(value, dict):
        times = max([1, *(_count(value.get(name)) for name in COUNTS)])
        names = sum(_expression_weight(name) for name in value) if key == "patternProperties" else 0
        return times * (
            1 + names + sum(_weight(row, depth - 1, name) for name, row in value.items())
        )
    if isinstance(value, list):
        return 1 + sum(_weight(row, depth - 1) for row in value)
    if isinstance(value, str) and key in ("regex", "pattern"):
        return _expression_weight(value)
    if isinstance(value, str) and key == "json":
        return _weight(_parse(value), depth - 1)
    return 0


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise RequestFault("'json' of 'structured_outputs' is no JSON.") from fault


def _count(value: Any) -> int:
    return int(min(value, MOST_WEIGHT + 1)) if isinstance(value, int | float) else 1


def _expression_weight(text: str) -> int:
    r"""Return the weight of a regular expression. Raises RequestFault for one of another dialect.

    vLLM answers 500 to some of those: classes by a property of Unicode, \p{Han}.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _tree_weight(re._parser.parse(text))  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError) as fault:
        raise RequestFault(
            f"The regular expression {text[:60]!r} is not read here ({str(fault)[:100]})."
        ) from fault


def _tree_weight(nodes: Iterable[Any]) -> int:
    """Return the weight of parsed nodes; one without an upper bound loops, and repeats no node."""
    total = 1
    for node in nodes:
        name, inner = (str(node[0]), node[1]) if isinstance(node, tuple) else ("", node)
        if name in REPEATS:
            least, most, part = inner
            times = least if most >= re._constants.MAXREPEAT else most  # type: ignore[attr-defined]
            total += max(1, times) * _tree_weight(part)
        elif isinstance(inner, tuple | list) or hasattr(inner, "data"):
            total += _tree_weight(inner)
        else:
            total += 1
    return total
