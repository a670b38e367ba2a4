"""Checks that every requirement lock is exact, hashed and complete.

`python -m tests.locked_requirements`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "requirements"
PIN = re.compile(r"^([A-Za-z0-9._-]+)(\[[^\]]*\])?==")


def faults(folder: Path = FOLDER) -> list[str]:
    """One sentence per fault."""
    found = []
    for source in sorted(folder.glob("*.in")):
        lock = source.with_suffix(".txt")
        if not lock.exists():
            found.append(f"{lock.name}: missing; run `make lock`.")
            continue
        text = lock.read_text(encoding="utf-8")
        missing = sorted(_wanted(source) - _pinned(text))
        found += [
            f"{lock.name}: '{name}' of {source.name} is not locked; run `make lock`."
            for name in missing
        ]
        found += [
            f"{lock.name}: '{name}' has no hash; run `make lock`." for name in _unhashed(text)
        ]
        if "://" in text:
            found.append(f"{lock.name}: names an index host; run `make lock`.")
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _wanted(path: Path) -> set[str]:
    names: set[str] = set()
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("-r "):
            names |= _wanted(path.parent / line[3:].strip())
        elif line and not line.startswith("-c "):
            names.add(_normal(re.split(r"[\[=<>~! ]", line)[0]))
    return names


def _pinned(text: str) -> set[str]:
    return {_normal(match.group(1)) for line in text.splitlines() if (match := PIN.match(line))}


def _unhashed(text: str) -> list[str]:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text)
    return [
        match.group(1)
        for block in blocks
        if (match := PIN.match(block)) and "--hash=sha256:" not in block
    ]


if __name__ == "__main__":
    problems = faults()
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
