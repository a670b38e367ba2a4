"""Differences of two templates, by class."""

from __future__ import annotations

import pytest

from roundhouse.gitops.template_changes import (
    REPLACING_PROPERTIES,
    is_outage,
    permission_changes,
    resource_changes,
    template_digest,
)

pytestmark = pytest.mark.unit

CONFIG, ENDPOINT = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Endpoint"


def template(kind="AWS::CloudWatch::Alarm", **properties):
    return {"Resources": {"A": {"Type": kind, "Properties": properties}}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, template(), "added"),
        (template(), None, "removed"),
        (template(Threshold=1), template(Threshold=2), "in-place"),
        (template(AlarmName="a"), template(AlarmName="b"), "replaced"),
        (template("AWS::S3::Bucket"), template("AWS::SNS::Topic"), "replaced"),
        (template(CONFIG, KmsKeyId="a"), template(CONFIG, KmsKeyId="b"), "new-version"),
        (template(ENDPOINT, EndpointConfigName="a"), template(ENDPOINT, EndpointConfigName="b"),
         "in-place"),
        (template(ENDPOINT, EndpointName="a"), template(ENDPOINT, EndpointName="b"), "outage"),
        (template(ENDPOINT), None, "outage"),
        (template(ENDPOINT), template(), "outage"),
    ],
)  # fmt: skip
def test_class_of_a_change(before, after, expected):
    changes = resource_changes(before, after)
    assert [change.change for change in changes] == [expected]
    assert is_outage(changes) == (expected == "outage")


def test_order_and_notes_alone_change_nothing():
    before = template(Threshold=1)
    after = {"Resources": {"A": {**before["Resources"]["A"], "DependsOn": ["B"], "Metadata": {}}}}
    assert resource_changes(before, after) == ()
    assert template_digest(before) == template_digest(after)


def test_what_an_update_takes_over_from_running_variants_changes_nothing():
    retained = {"Fn::If": ["VariantPropertiesAreRetained", True, {"Ref": "AWS::NoValue"}]}
    sides = template(ENDPOINT, RetainAllVariantProperties=retained), template(ENDPOINT)
    assert resource_changes(*sides) == () and len(set(map(template_digest, sides))) == 1


def test_digest_does_not_depend_on_how_a_whole_number_is_written():
    assert template_digest(template(Threshold=1.0, Values=(2.0, 0.5))) == template_digest(
        template(Threshold=1, Values=[2, 0.5])
    )


def test_property_is_named_by_its_whole_path_and_a_long_text_by_its_digest():
    before = template(A={"B": [{"C": 1}, {"C": 2}]}, D="x" * 3000, E=[1])
    after = template(A={"B": [{"C": 1}, {"C": 3}]}, D="y" * 3000, E=[1, 2])
    (change,) = resource_changes(before, after)
    assert [(item.path, item.before) for item in change.properties][::2] == [
        ("A.B[1].C", 2),
        ("E", [1]),
    ]
    assert change.properties[1].before.startswith("3,000 characters, sha256 ")


def test_grant_that_only_moves_to_another_policy_is_no_change():
    def policy(name, action):
        statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
        return {
            "Resources": {
                name: {
                    "Type": "AWS::IAM::Policy",
                    "Properties": {"PolicyDocument": {"Statement": [statement]}},
                }
            }
        }

    assert permission_changes(policy("A", "s3:GetObject"), policy("B", "s3:GetObject")).added == ()
    changed = permission_changes(policy("A", "s3:GetObject"), policy("B", "s3:*"))
    assert changed.broadened and "s3:*" in changed.added[0] and len(changed.removed) == 1


def test_replacing_properties_are_those_of_cloudformations_schemas():
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

    for kind, properties in REPLACING_PROPERTIES.items():
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema
        known = {path.split("/")[2] for path in schema["createOnlyProperties"]}
        assert set(properties) <= known, kind
