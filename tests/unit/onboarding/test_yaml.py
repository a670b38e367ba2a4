"""YAML is read with the line of every key and item, and its surprises become sentences."""

from __future__ import annotations

import os

import pytest
import yaml

from onboarding.document import parse_document, read_document
from onboarding.lock import LockError, read_lock
from onboarding.yaml_text import TooDeepError, compose_yaml, load_yaml


def data(text: str):
    document, faults = parse_document(text, "x.yaml")
    assert faults == () and document is not None
    return document


def fault(text: str):
    _, faults = parse_document(text, "x.yaml")
    assert len(faults) == 1
    return faults[0]


def test_lines_are_known_for_every_key_and_item():
    document = data("# a comment\na:\n  b: 1\n  c:\n    - x\n    - y: 2\nd: {e: 3,\n  f: 4}\n")
    lines = {path: place.line for path, place in document.places.items()}
    assert lines == {
        (): 2, ("a",): 2, ("a", "b"): 3, ("a", "c"): 4, ("a", "c", 0): 5, ("a", "c", 1): 6,
        ("a", "c", 1, "y"): 6,
        ("d",): 7, ("d", "e"): 7, ("d", "f"): 8,
    }  # fmt: skip


def test_override_merges_mappings_and_replaces_the_rest():
    base = data("a: {x: 1, y: 2}\nb: [1, 2, 3]\nc: {z: 1}\nd: word\n")
    override, _ = parse_document("\n\n\na: {y: 3}\nb: [4]\nc: word\nd: {k: 1}\n", "o.yaml")
    merged = base.with_overrides(override)
    assert merged.data == {"a": {"x": 1, "y": 3}, "b": [4], "c": "word", "d": {"k": 1}}
    assert (merged.at("a", "x").file, merged.at("a", "y").file, merged.at("a").file) == (
        "x.yaml",
        "o.yaml",
        "x.yaml",
    )
    assert (merged.at("b", 0).line, merged.at("c").line, merged.at("d", "k").line) == (5, 6, 7)
    assert ("b", 2) not in merged.places and ("c", "z") not in merged.places
    assert base.data["a"]["y"] == 2


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: [\n", 3, "not YAML"),
        ("a: 1\n\tb: 2\n", 2, "not YAML"),
        ("a: 1\nb: *c\n", 2, "undefined alias"),
        ("a: 1\nb: \x00\n", 2, "not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("\n\nword\n", 3, "a single value"),
        ("", 1, "is empty"),
        ("a: {b: 1, b: 2}\n", 1, "duplicate key 'b'"),
        ("a: 1\nb: .inf\n", 2, "not a usable value"),
        ("a: 99999999999999999999\n", 1, "not a usable value"),
        ("a: !!python/name:os.system x\n", 1, "not a usable value"),
        ("a: !!binary aGk=\n", 1, "not a usable value"),
    ],
)
def test_refuses_with_the_line(text, line, words):
    found = fault(text)
    assert (found.file, found.line) == ("x.yaml", line) and words in str(found)


def test_refuses_deep_nesting():
    assert "nests" in fault("a: " + "[" * 100 + "]" * 100).what
    assert "nests too much" in fault("[" * 100_000).what
    assert "nests too much" in fault("- " * 100_000).what
    assert "nests" in fault("".join(f"{' ' * depth}a:\n" for depth in range(300))).what


def test_refuses_more_keys_than_anybody_writes_at_once():
    document, faults = parse_document(
        "".join(f"key{number}: 1\n" for number in range(5_001)), "x.yaml"
    )
    assert document is None and len(faults) == 1
    assert faults[0].line is not None and "too long; allowed: 5000 values" in faults[0].what


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 12:30:00\n", "YAML reads 12:30:00 as 45000, a number to the base 60"),
        ("a: 1:30.5\n", "YAML reads 1:30.5 as 90.5, a number to the base 60"),
        ("a: '  '\n", "is blank"),
        ('a: "right\\u202eto left"\n', "one that nobody sees, given right\\u202eto left"),
        ("'ke\u200by': 1\n", "a key is not plain text"),
    ],
)
def test_refuses_what_reads_otherwise_than_it_looks(text, words):
    assert words in str(fault(text))


def test_refuses_a_pipe_without_waiting_for_it(tmp_path):
    path = tmp_path / "x.yaml"
    os.mkfifo(path)
    assert "is a device or a pipe" in read_document(path, "x.yaml")[1][0].what


DEEP = {
    "keys": "? " * 120_000 + "a",
    "items": "- " * 120_000,
    "brackets": "[" * 120_000,
    "lines": " " * 3_000 + "a: 1",
}


@pytest.mark.parametrize("text", ["%FOO bar\n---\na: 1\n", 'a: "\\ud800"\n'])
def test_text_that_only_pyyaml_reads_is_read(text):
    with pytest.raises(yaml.YAMLError):
        yaml.load(text, Loader=yaml.CSafeLoader)
    assert load_yaml(text) == yaml.safe_load(text)
    assert compose_yaml(text) is not None


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_refuses_a_depth_that_would_end_the_process(text, tmp_path):
    for read in (compose_yaml, load_yaml):
        with pytest.raises(TooDeepError):
            read(text)
    (tmp_path / "m.lock.yaml").write_text(text)
    with pytest.raises(LockError, match="is not a lock file"):
        read_lock(tmp_path, "m")
