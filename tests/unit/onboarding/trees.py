"""Onboarding trees for tests: copies of tests/fixtures/onboarding/base with changes."""

from __future__ import annotations

import shutil
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures" / "onboarding"

Change = str | bytes | dict[str, str] | None


def tree_root(folder: Path, changes: dict[str, Change]) -> Path:
    """Return a copy of the base tree with changes.

    A change is a file's whole text, a mapping of old words to new ones, or None to leave it out.
    """
    root = folder / "root"
    shutil.copytree(FIXTURES / "base", root)
    for name, change in changes.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if change is None:
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
        else:
            path.write_bytes(_bytes(path, change))
    return root


def _bytes(path: Path, change: str | bytes | dict[str, str]) -> bytes:
    if isinstance(change, bytes):
        return change
    return (_edit(path.read_text(), change) if isinstance(change, dict) else change).encode()


def _edit(text: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        assert text.count(old) == 1, f"'{old}' stands {text.count(old)} times in the base file"
        text = text.replace(old, new)
    return text
