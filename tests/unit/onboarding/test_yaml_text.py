"""libyaml reads what PyYAML reads, at the same lines; dangerous depths are refused first."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from onboarding.lock import LockError, read_lock
from onboarding.yaml_text import TooDeepError, compose_yaml, load_yaml

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
TEXTS = {
    path.name: path.read_text(encoding="utf-8")
    for path in ROOT.glob("*/*.yaml")
    if path.parent.name != "tests"
}
TEXTS |= {
    path.name: path.read_text(encoding="utf-8")
    for path in (ROOT / "onboarding" / "data").glob("*.yaml")
}
DEEP = {
    "keys": "? " * 120_000 + "a",
    "items": "- " * 120_000,
    "brackets": "[" * 120_000,
    "lines": " " * 3_000 + "a: 1",
}


def shape(node):
    """Tags, values and lines of a node and all below it."""
    if isinstance(node, yaml.ScalarNode):
        return (node.tag, node.value, node.start_mark.line)
    parts = (
        [part for pair in node.value for part in pair]
        if isinstance(node, yaml.MappingNode)
        else node.value
    )
    return (node.tag, node.start_mark.line, [shape(part) for part in parts])


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_shipped_files_have_the_nodes_and_lines_that_pyyaml_gives(name):
    assert shape(compose_yaml(TEXTS[name])) == shape(
        yaml.compose(TEXTS[name], Loader=yaml.SafeLoader)
    )
    assert load_yaml(TEXTS[name]) == yaml.safe_load(TEXTS[name])


@pytest.mark.parametrize("text", ["%FOO bar\n---\na: 1\n", 'a: "\\ud800"\n'])
def test_text_that_only_pyyaml_reads_is_read(text):
    with pytest.raises(yaml.YAMLError):
        yaml.load(text, Loader=yaml.CSafeLoader)
    assert load_yaml(text) == yaml.safe_load(text)
    assert shape(compose_yaml(text)) == shape(yaml.compose(text, Loader=yaml.SafeLoader))


def test_faults_are_reported_in_pyyamls_words():
    with pytest.raises(yaml.YAMLError) as expected:
        yaml.safe_load("a: [\n")
    for read in (compose_yaml, load_yaml):
        with pytest.raises(yaml.YAMLError) as actual:
            read("a: [\n")
        assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_refuses_a_depth_that_would_end_the_process(text, tmp_path):
    for read in (compose_yaml, load_yaml):
        with pytest.raises(TooDeepError):
            read(text)
    (tmp_path / "m.lock.yaml").write_text(text)
    with pytest.raises(LockError, match="is not a lock file"):
        read_lock(tmp_path, "m")
