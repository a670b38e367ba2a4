"""Breadth is what costs: commands, options, YAML keys, lines and pages stay within their bars.

A bar is lowered when something goes. A change that needs a higher one names what it replaces.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import typer

from roundhouse.cli.app import app

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
COMMANDS, OPTIONS, OPTIONS_OF_ONE, YAML_KEYS = 18, 120, 12, 193
SOURCE_LINES, TEST_LINES = 87_260, 64_020
PAGES, MARKDOWN_BYTES = 14, 164_800


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git knows."""
    command = ("git", "ls-files", "--", *patterns)
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listing.splitlines() if (path := ROOT / name).is_file()]


def lines(paths: list[Path]) -> int:
    """Return the physical lines of files."""
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def properties(schema: object) -> int:
    """Return the number of keys that a JSON Schema describes, once for each place."""
    if isinstance(schema, list):
        return sum(map(properties, schema))
    if not isinstance(schema, dict):
        return 0
    own = schema.get("properties", {})
    return (len(own) if isinstance(own, dict) else 0) + sum(map(properties, schema.values()))


def test_commands_and_options():
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {
        name: sum(item.param_type_name == "option" and item.name != "help" for item in found.params)
        for name, found in commands.items()
    }
    assert len(options) <= COMMANDS
    assert {name: count for name, count in options.items() if count > OPTIONS_OF_ONE} == {}
    assert sum(options.values()) <= OPTIONS


def test_keys_of_model_and_endpoint_files():
    files = ("model", "endpoint")
    schemas = [json.loads((ROOT / f"schemas/{name}.schema.json").read_text()) for name in files]
    assert properties(schemas) <= YAML_KEYS


def test_lines_of_source_and_of_tests():
    tests = tracked("tests/*.py")
    assert lines([path for path in tracked("*.py") if path not in set(tests)]) <= SOURCE_LINES
    assert lines(tests) <= TEST_LINES


def test_pages_and_their_size():
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "benchmarks").glob("*.md")]
    assert len(pages) <= PAGES
    assert sum(path.stat().st_size for path in tracked("*.md")) <= MARKDOWN_BYTES
