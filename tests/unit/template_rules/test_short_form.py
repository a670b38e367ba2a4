"""Templates as text: JSON and YAML with short intrinsics come to one document; what cannot be read
is said.
"""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from template_rules.short_form import DEEPEST, TextFault, document, is_template

pytestmark = pytest.mark.unit

TENFOLD = [
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]" for before, name in pairwise("abcdefgh")
]
BOMB = "\n".join(["a: &a [x,x,x,x,x,x,x,x,x,x]", *TENFOLD])


def test_short_intrinsics_are_the_long_ones():
    text = """
a: !Ref X
b: !GetAtt X.Y.Z
c: !GetAtt [X, Y]
d: !Sub "${X}"
e: !If [A, !Ref B, !Join [",", [1]]]
f: !Condition C
g: !Transform {Name: M}
"""
    assert document(text, is_json=False) == {
        "a": {"Ref": "X"},
        "b": {"Fn::GetAtt": ["X", "Y.Z"]},
        "c": {"Fn::GetAtt": ["X", "Y"]},
        "d": {"Fn::Sub": "${X}"},
        "e": {"Fn::If": ["A", {"Ref": "B"}, {"Fn::Join": [",", [1]]}]},
        "f": {"Condition": "C"},
        "g": {"Fn::Transform": {"Name": "M"}},
    }


def test_dates_and_keys_are_texts():
    assert document("Version: 2012-10-17\nAccounts: {111122223333: a, true: b}", is_json=False) == {
        "Version": "2012-10-17",
        "Accounts": {"111122223333": "a", "true": "b"},
    }


@pytest.mark.parametrize("is_json", [True, False])
def test_refuses_a_key_twice(is_json):
    with pytest.raises(TextFault, match="the key A is there twice") as raised:
        document('{"Resources": {"A": 1, "A": 2}}', is_json=is_json)
    assert raised.value.key_twice


def test_says_both_lines_of_a_key_twice():
    with pytest.raises(TextFault, match="the key B is there twice, on lines 2 and 4"):
        document("A:\n  B: 1\n  C: 2\n  B: 3\n", is_json=False)


@pytest.mark.parametrize(
    ("text", "is_json", "why"),
    [
        ("{", True, "it is no JSON: line 1, column 2"),
        ("a: [", False, "it is no YAML: line"),
        ("a: !a/b c", False, "a tag that CloudFormation has not"),
        ("a: \x07", False, "it is no YAML"),
        ("[" * 200 + "]" * 200, True, "nested 200 levels deep"),
        ("[" * 50_000 + "]" * 50_000, True, "nested too deeply"),
        ("[" * 50_000 + "]" * 50_000, False, "nested too deeply"),
        ("- " * 50_000, False, "nested too deeply"),
        ("a: &a [*a]", False, "recursive"),
        (BOMB, False, "more than 500000 values, its aliases followed"),
    ],
)
def test_refuses_what_is_no_document(text, is_json, why):
    with pytest.raises(TextFault, match=why):
        document(text, is_json=is_json)


def test_deepest_document_is_read():
    value: object = 1
    for _ in range(DEEPEST - 1):
        value = [value]
    assert document(json.dumps({"a": value}), is_json=True) == {"a": value}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"Resources": {"A": {"Type": "AWS::SQS::Queue"}}}, True),
        ({"AWSTemplateFormatVersion": "2010-09-09"}, True),
        ({"Parameters": {}, "Rules": {}}, True),
        ({"Resources": {"cpu": 1}}, False),
        ({"name": "a"}, False),
        ([], False),
    ],
)
def test_templates_are_told_from_other_documents(content, expected):
    assert is_template(content) is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": ' + "9" * 5000 + "}", "a number has thousands of digits"),
        ('{"a": ["\\ud800"]}', "it holds half a character: '\\ud800'"),
        ('{"\\udfff": 1}', "it holds half a character: '\\udfff'"),
    ],
)
def test_refuses_what_no_text_can_say(text, why):
    with pytest.raises(TextFault) as fault:
        document(text, is_json=True)
    assert why in str(fault.value)


def test_whole_characters_of_two_halves_are_read():
    assert document('{"a": "\\ud83d\\ude80"}', is_json=True) == {"a": "\U0001f680"}
