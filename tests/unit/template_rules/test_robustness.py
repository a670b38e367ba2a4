"""Templates of any shape: rules find or pass, and never break."""

from __future__ import annotations

import copy
import random

import pytest

from template_rules.checking import checked
from template_rules.finding import Problem
from template_rules.rule import rule, together_rule
from template_rules.rules import BROKEN, rules
from template_rules.template import Template
from tests.unit.template_rules.cases import bases

pytestmark = pytest.mark.unit

SCALARS = (None, True, -1, 1.5, 10**400, float("nan"), float("inf"))
TEXTS = ("", "x", "\0", "{{resolve:ssm:a}}", "a/b/c", "${", "${A.B}", "p999")
PLAIN = (
    [],
    [[]],
    [None],
    {},
    [{"Name": [], "Value": {}}],
    {"Statement": "x"},
    {"Key": {"Ref": "Key"}},
    {"Condition": "x"},
)
CALLS = (
    {"Ref": "Nothing"},
    {"Ref": 5},
    {"Ref": "AWS::NoValue"},
    {"Fn::GetAtt": "a"},
    {"Fn::GetAtt": [1, 2]},
    {"Fn::Sub": ["${a}", 3]},
    {"Fn::Sub": 7},
    {"Fn::Join": ["", "a"]},
    {"Fn::Join": 1},
    {"Fn::Select": ["9", []]},
    {"Fn::If": ["a"]},
    {"Fn::FindInMap": ["a", {"Ref": "b"}, []]},
    {"Fn::Split": ["", "a"]},
    {"Fn::Nothing": {}},
)
JUNK = (*SCALARS, *TEXTS, *PLAIN, *CALLS)


def places(value, path=()):
    """Paths to every value of a document."""
    yield path
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in pairs:
        yield from places(each, (*path, key))


def with_junk(document, path, junk):
    """The document with junk at a path."""
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    if path:
        holder[path[-1]] = junk
    return changed


@pytest.mark.parametrize("base", bases())
def test_every_place_may_hold_anything(base):
    document = bases()[base]
    choose = random.Random(base)
    for path in places(document):
        for junk in choose.sample(JUNK, 6):
            changed = with_junk(document, path, copy.deepcopy(junk))
            if isinstance(changed, dict):
                found = checked([Template("a", changed)], {"a": Template("a", document)})
                assert all(str(each) for each in found.findings)
                assert BROKEN.id not in {each.rule for each in found.findings}, [path, junk]


def test_a_resource_may_be_named_after_itself():
    document = {
        "Resources": {
            "A": {
                "Type": "AWS::SQS::Queue",
                "Properties": {"QueueName": {"Fn::GetAtt": ["A", "QueueName"]}},
            }
        }
    }
    assert {each.rule for each in checked([Template("a", document)]).findings} == {"RH023"}


def test_deep_values_end():
    value: object = "x"
    for _ in range(20):
        value = {"Fn::Sub": ["${a}", {"a": value}]}
    document = {"Resources": {"A": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": value}}}}
    assert checked([Template("a", document)]).findings == ()


@rule("RH998", "a rule that breaks")
def breaking(template):
    yield Problem(what="said before it broke", way_out="look")
    raise KeyError(template.file)


@together_rule("RH999", "a rule of all that breaks")
def breaking_together(templates):
    raise RecursionError(len(templates))


@pytest.mark.parametrize(
    ("broken", "value"),
    [(breaking, "KeyError: \"'a'\""), (breaking_together, "RecursionError: '1'")],
)
def test_a_rule_that_breaks_is_a_finding_and_hides_no_other(broken, value):
    document = {
        "Resources": {"A": {"Type": "AWS::SQS::Queue", "Properties": {"DelaySeconds": "soon"}}}
    }
    found = checked([Template("a", document)], by=[broken, *rules()]).findings
    (said,) = [each for each in found if each.rule == BROKEN.id]
    assert said.severity == "error"
    assert said.value == value
    assert f"rule {broken.id} broke at test_robustness.py:" in said.what
    assert "RH032" in {each.rule for each in found}
    assert (broken is breaking) == ("said before it broke" in {each.what for each in found})


def test_what_a_macro_may_change_is_a_warning():
    document = {"Resources": {"A": {"Type": "AWS::S3::Bucket"}}}
    plain = checked([Template("a", document)])
    assert (
        plain.errors,
        checked([Template("a", {**document, "Transform": "AWS::LanguageExtensions"})]).errors,
    ) == (2, 2)
    changed = checked([Template("a", {**document, "Transform": "OurMacro"})])
    assert (changed.errors, len(changed.findings)) == (0, len(plain.findings))
