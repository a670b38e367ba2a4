"""Intrinsics come to what a deployment would see, or are known to be unknown."""

from __future__ import annotations

import pytest

from template_rules.short_form import document
from template_rules.stack_facts import StackFacts
from template_rules.template import Template
from template_rules.values import is_known, shown

pytestmark = pytest.mark.unit

HEAD = """
Parameters:
  Stage: {Type: String, Default: dev}
  Count: {Type: Number, Default: 3}
  Subnets: {Type: CommaDelimitedList, Default: "a, b"}
  Open: {Type: String}
  Image: {Type: "AWS::SSM::Parameter::Value<String>", Default: /a/b}
Mappings:
  Sizes: {dev: {type: ml.g5.xlarge}, "111122223333": {type: ml.g6.xlarge}}
Conditions: {A: !Equals [a, b]}
Resources:
  Named: {Type: AWS::SQS::Queue, Properties: {QueueName: !Sub "queue-${Stage}"}}
  Unnamed: {Type: AWS::SQS::Queue}
  Alarm: {Type: AWS::CloudWatch::Alarm, Properties: {AlarmName: slow}}
  Bucket: {Type: AWS::S3::Bucket, Properties: {BucketName: b}}
  Subject: {Type: AWS::SSM::Parameter, Properties: {Type: String, Value: VALUE}}
"""


NO_FACTS = StackFacts()


def resolved(value, stack=NO_FACTS):
    text = HEAD.replace("VALUE", value)
    return (
        Template("a", document(text, is_json=False), stack=stack)
        .resources["Subject"]
        .properties.get("Value")
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("!Ref Stage", "dev"),
        ("!Ref Count", 3),
        ("!Ref Subnets", ["a", "b"]),
        ("!Sub 'x-${Stage}-${!Stage}'", "x-dev-${Stage}"),
        ("!Sub ['${a}-${Stage}', {a: !Ref Count}]", "3-dev"),
        ("!Join ['/', [endpoint, !Ref Stage, variant]]", "endpoint/dev/variant"),
        ("!Select [1, !Ref Subnets]", "b"),
        ("!Select [0, !Split ['-', a-b]]", "a"),
        ("!FindInMap [Sizes, !Ref Stage, type]", "ml.g5.xlarge"),
        ("!FindInMap [Sizes, '111122223333', type]", "ml.g6.xlarge"),
        ("!GetAtt Named.QueueName", "queue-dev"),
        ("!Ref Alarm", "slow"),
        ("!Ref Bucket", "b"),
        ("!If [A, same, same]", "same"),
        ("2026-01-31", "2026-01-31"),
        ("!Ref AWS::NoValue", None),
    ],
)
def test_what_the_template_knows_is_resolved(value, expected):
    assert resolved(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("!Ref Open", "${Open}"),
        ("!Ref Image", "${Image}"),
        ("!GetAtt Unnamed.QueueName", "${Unnamed.QueueName}"),
        ("!GetAtt Named.Arn", "${Named.Arn}"),
        ("!Ref Named", "${Named}"),
        ("!Sub 'x-${Open}'", "x-${Open}"),
        ("!If [A, one, another]", '${{"Fn::If": ["A", "one", "another"]}}'),
        ("!ImportValue a", '${{"Fn::ImportValue": "a"}}'),
        ("!Sub '{{resolve:ssm:a}}'", "${{{resolve:ssm:a}}}"),
        (
            "!FindInMap [Sizes, !Ref Open, type]",
            '${{"Fn::FindInMap": ["Sizes", {"Ref": "Open"}, "type"]}}',
        ),
        ("!Ref AWS::Region", "${AWS::Region}"),
    ],
)
def test_what_only_a_deployment_knows_is_unknown(value, expected):
    found = resolved(value)
    assert not is_known(found)
    assert shown(found) == expected


def test_pseudo_parameters_are_those_of_the_stack():
    stack = StackFacts(name="s", account="111122223333", region="cn-north-1")
    assert resolved(
        "!Sub '${AWS::Partition}:${AWS::Region}:${AWS::AccountId}:${AWS::StackName}'", stack
    ) == ("aws-cn:cn-north-1:111122223333:s")


def test_names_by_reference_and_by_text_are_one():
    names = (
        "!GetAtt Unnamed.QueueName",
        "!Sub '${Unnamed.QueueName}'",
        "!Join ['', [!GetAtt Unnamed.QueueName]]",
    )
    assert len({resolved(name) for name in names}) == 1
