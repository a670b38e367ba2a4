"""The table of differences between the servers, generated from what the suite asks.

`python -m tests.contract.differences`. `--write` puts it between the markers of
docs/reference/servers.md; without it, a stale document is reported and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from onboarding.serve_environment import VARIABLES
from tests.contract.exchanges import TABLES
from tests.contract.replies import TITLES, Exchange

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "servers.md"


def table(name: str, exchanges: Sequence[Exchange], kinds: tuple[str, ...]) -> Iterable[str]:
    """What differs, one request a row, and in one line what does not."""
    asked = [exchange for exchange in exchanges if exchange.kinds(kinds)]
    unlike = [
        exchange
        for exchange in asked
        if len({str(reply) for reply in _replies(exchange, kinds)}) > 1
    ]
    if unlike:
        yield from (
            "",
            f"| {name} | {' | '.join(TITLES[kind] for kind in kinds)} |",
            f"|---{'|---' * len(kinds)}|",
        )
        yield from (
            f"| {exchange.name} | {' | '.join(_cells(exchange, kinds))} |" for exchange in unlike
        )
    alike = [
        f"{exchange.name} ({_replies(exchange, kinds)[0]})"
        for exchange in asked
        if exchange not in unlike
    ]
    if alike:
        line = f"*{name}, alike wherever they apply:* {'; '.join(alike)}."
        yield from ("", textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False))


def _replies(exchange: Exchange, kinds: tuple[str, ...]) -> list[object]:
    return [exchange.replies[kind] for kind in exchange.kinds(kinds)]


def _cells(exchange: Exchange, kinds: tuple[str, ...]) -> Iterable[str]:
    return (str(exchange.replies[kind]) if kind in exchange.replies else "-" for kind in kinds)


def differences() -> str:
    """Every table."""
    return "\n".join(line for each in TABLES for line in table(*each)).strip("\n")


def variables() -> str:
    """The environment of `serve`, one variable a row."""
    rows = (
        f"| `{variable.name}` | {variable.value} | {variable.reason} |" for variable in VARIABLES
    )
    return "\n".join(("| variable | value | reason |", "|---|---|---|", *rows))


GENERATED = {"differences": differences, "variables": variables}
"""What stands between the markers of each name."""


def written(document: str) -> str:
    """The document with everything generated in its place.

    Raises ValueError when a marker is missing.
    """
    for name, made in GENERATED.items():
        start, end = f"<!-- {name}: generated -->\n", f"<!-- {name}: end -->"
        before, found, rest = document.partition(start)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the document lacks the markers {start.strip()} and {end}")
        document = f"{before}{start}{made()}\n{end}{after}"
    return document


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the document, or says whether it is stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.differences")
    parser.add_argument("--write", action="store_true")
    wish = parser.parse_args(arguments)
    present = DOCUMENT.read_text(encoding="utf-8")
    wanted = written(present)
    if wish.write:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif present != wanted:
        print(
            f"error: {DOCUMENT.name} is stale; write it with: python -m "
            "tests.contract.differences --write",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
