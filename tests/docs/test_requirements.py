"""requirements.txt installs what the product's card names, and its groups agree."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "requirements.txt").read_text(encoding="utf-8")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
INSTALLED = {"aws-cdk-lib", "boto3", "constructs", "onnx", "pytest"}
APART = {
    "sagemaker": "sagemaker-core",
    "tensorrt": "tensorrt-cu13-bindings",
    "torch": "onnxruntime",
}
"""Packages of groups that are not installed, and what their files pin of them."""


def pins(file):
    return dict(PIN.findall((ROOT / file).read_text(encoding="utf-8")))


def test_groups_hold_the_packages_and_pin_each_once():
    groups = re.findall(r"^-r (\S+)$", TEXT, re.MULTILINE)
    pinned = [pins(group) for group in groups]
    names = {name for group in pinned for name in group}
    assert names >= INSTALLED
    versions = {name: {group[name] for group in pinned if name in group} for name in names}
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_groups_that_are_not_installed_are_named_with_their_files():
    rows = dict(re.findall(r"^# {3}(\w+) +(requirements/\S+\.txt)", TEXT, re.MULTILINE))
    assert set(rows) == set(APART)
    for name, package in APART.items():
        assert package in pins(rows[name])
