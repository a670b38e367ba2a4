"""A tree is read whole: every fault of every file at once, whatever the files hold."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from onboarding.environment_spec import EnvironmentSpec
from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.tree import read_tree
from tests.unit.onboarding.trees import FIXTURES, tree_root

MODEL, CLOUD, SHARED, JOINER = (
    "models/example.yaml",
    "environments/cloud.yaml",
    "endpoints/shared.yaml",
    "models/joiner.yaml",
)


def faults_of(root: Path) -> list[str]:
    return [str(fault) for fault in read_tree(root).faults]


@pytest.fixture
def faults(tmp_path):
    """Return the faults of the base tree with changes, as lines."""
    return lambda changes: faults_of(tree_root(tmp_path, changes))


FORM = {
    (MODEL, 2): {"task: text-embedding": "taks: text-embedding"},
    (MODEL, 12): {"samples: 4": 'samples: "4"'},
    (MODEL, 18): {"max_queue_delay_us": "max_qeue_delay_us"},
    (CLOUD, 3): {"us-east-1": "useast1"},
    ("models/broken.yaml", 1): "a: [",
}
CONTENT = {
    (MODEL, 4): {"example-model==1.0.0": "example-model"},
    (MODEL, 8): {"[1, 4, 8]": "[5, 4, 8]"},
    (MODEL, 14): {"models/data/validation.txt": "models/data/none.txt"},
    (MODEL, 23): {"min: 1": "min: 3"},
    (JOINER, 6): {"endpoint: shared": "endpoint: shard"},
    (CLOUD, 4): {"26.05": "26.5"},
}
ALONE = {(SHARED, 3): {"ml.g5.2xlarge": "ml.g5.3xlarge"}}
WORDS_AT = {
    (MODEL, 2): "'taks'",
    (MODEL, 4): "unpinned",
    (MODEL, 8): "min is above opt",
    (MODEL, 12): "whole number",
    (MODEL, 14): "does not exist",
    (MODEL, 18): "max_qeue_delay_us",
    (MODEL, 23): "above 'scaling.max'",
    (JOINER, 6): "unknown shared endpoint",
    (SHARED, 3): "unknown instance type",
    (CLOUD, 3): "'region'",
    (CLOUD, 4): "unknown platform",
    ("models/broken.yaml", 1): "not YAML",
}


@pytest.mark.parametrize(
    ("written", "reported"),
    [(FORM | CONTENT | ALONE, FORM | ALONE), (CONTENT | ALONE, CONTENT | ALONE)],
    ids=["files whose form is wrong are judged no further, all others are", "every form is right"],
)
def test_tree_reports_every_fault_of_every_file_at_once(tmp_path, written, reported):
    changes: dict = {}
    for (file, _), change in written.items():
        changes[file] = change if isinstance(change, str) else changes.get(file, {}) | change
    found = {
        (fault.file, fault.line): str(fault)
        for fault in read_tree(tree_root(tmp_path, changes)).faults
    }
    assert found.keys() == reported.keys(), "\n".join(found.values())
    assert all(WORDS_AT[place] in line for place, line in found.items())


def second_environment(**overrides: object) -> str:
    facts = {
        "name": "second",
        "account": "000000000000",
        "region": "us-east-1",
        "platform": "triton-26.05",
        "locks": "locks/second",
    }
    return yaml.safe_dump({**facts, **overrides})


def on_instance_type(name: str) -> str:
    """A second environment whose `example` has another instance type."""
    return second_environment(models={"example": {"endpoint": {"instance_type": name}}})


@pytest.mark.parametrize(
    ("model", "environment", "patterns"),
    [
        ({"precision: auto": "precision: fp8"}, second_environment(), [r"^(?!.*environment)"]),
        (
            {"precision: auto": "precision: bf16", "ml.g5.xlarge": "ml.g4dn.xlarge"},
            on_instance_type("ml.g5.xlarge"),
            ["in environment cloud, "],
        ),
        (
            {"precision: auto": "precision: fp8"},
            on_instance_type("ml.g4dn.xlarge"),
            ["T4", "A10G"],
        ),
    ],
    ids=["of every environment, once", "of some, which are named", "of each, which differ"],
)
def test_fault_names_its_environments(model, environment, patterns, faults):
    lines = faults({MODEL: model, "environments/second.yaml": environment})
    assert len(lines) == len(patterns)
    assert all(map(re.search, patterns, lines)), lines


def test_override_is_merged_before_validation(tmp_path):
    override = (
        "models:\n  example:\n    endpoint: {instance_type: ml.g6.xlarge}\n"
        "    serving: {dynamic_batching: {preferred_batch_sizes: [2]}}"
    )
    tree = read_tree(tree_root(tmp_path, {CLOUD: {"name: cloud": f"name: cloud\n{override}"}}))
    spec = tree.views["cloud"].models["example"].spec
    assert isinstance(spec.endpoint, EndpointSpec)
    assert (spec.endpoint.instance_type, spec.endpoint.scaling.max) == ("ml.g6.xlarge", 2)
    assert spec.serving.dynamic_batching.preferred_batch_sizes == (2,)
    assert tree.models["example"].endpoint != spec.endpoint


def test_refuses_a_dataset_behind_a_link_out_of_the_root(tmp_path):
    root = tree_root(tmp_path, {})
    (tmp_path / "secret.txt").write_text("x\n")
    (root / "models/data/validation.txt").unlink()
    (root / "models/data/validation.txt").symlink_to(tmp_path / "secret.txt")
    assert all("outside the onboarding root" in line for line in faults_of(root))


def test_refuses_a_file_whose_name_cannot_be_printed(tmp_path):
    root = tree_root(tmp_path, {})
    (root / "models" / "new\nline.yaml").write_text("name: a\n")
    os.close(os.open(os.fsencode(root / "models") + b"/b\xff.yaml", os.O_CREAT | os.O_WRONLY))
    lines = faults_of(root)
    assert len(lines) == 2 and all("file name" in line and line.isprintable() for line in lines)


def test_refuses_a_mapping_that_multiplies_without_end(faults):
    laughs = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)
    )
    assert "nests or repeats too much" in "\n".join(faults({"models/laughs.yaml": laughs}))


FIELDS = {*ModelSpec.model_fields, *EnvironmentSpec.model_fields}
WORDS = st.sampled_from(sorted(FIELDS | {"budget", "mean", "batch", "dataset", "example", "zz"}))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.binary(max_size=4),
    WORDS,
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(WORDS, SCALARS), inner, max_size=6)
    ),
    max_leaves=20,
)
BASE = (FIXTURES / "base" / MODEL).read_text().splitlines()
EDITED = st.tuples(
    st.integers(0, len(BASE) - 1), st.text(st.characters(codec="utf-8"), max_size=12)
).map(
    lambda edit: "\n".join(
        [*BASE[: edit[0]], BASE[edit[0]].partition(":")[0] + ": " + edit[1], *BASE[edit[0] + 1 :]]
    ).encode()
)
FILES = st.one_of(
    st.binary(max_size=60),
    st.text(st.characters(codec="utf-8"), max_size=60).map(str.encode),
    DATA.map(lambda data: yaml.dump(data, allow_unicode=True).encode("utf-8", "surrogatepass")),
    EDITED,
)


@settings(max_examples=60, deadline=None, database=None)
@given(content=FILES, name=st.sampled_from([MODEL, SHARED, CLOUD, "models/data/validation.txt"]))
def test_reading_never_raises_whatever_a_file_holds(content, name):
    with tempfile.TemporaryDirectory() as folder:
        for fault in read_tree(tree_root(Path(folder), {name: content})).faults:
            assert str(fault).encode("utf-8") and "\n" not in str(fault)
