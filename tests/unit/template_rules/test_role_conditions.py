"""E9707: conditions hold where the role works; a key in another region is used by that region's S3.

Roles that promote decrypt with the key of the environment that they promote from.
"""

from __future__ import annotations

import pytest

from template_rules.intrinsics import Stack
from template_rules.rules.roles import conditions_here
from template_rules.templates import Assembly, Template

pytestmark = pytest.mark.unit

HERE = Stack(name="prod-access", account="444455556666", region="eu-west-1")
OWN_KEY, SOURCE_KEY = (
    f"arn:aws:kms:{place}:key/a" for place in ("eu-west-1:444455556666", "us-east-1:111122223333")
)


def faults(resources, condition):
    """The messages of E9707 on a role that may decrypt under a condition."""
    statement = {
        "Effect": "Allow",
        "Action": "kms:Decrypt",
        "Resource": resources,
        "Condition": {"StringEquals": condition},
    }
    role = {
        "AssumeRolePolicyDocument": {"Statement": []},
        "Policies": [{"PolicyName": "exact", "PolicyDocument": {"Statement": [statement]}}],
    }
    document = {"Resources": {"Role": {"Type": "AWS::IAM::Role", "Properties": role}}}
    assembly = Assembly([Template("a.template.json", document, stack=HERE)])
    return [problem.message for problem in conditions_here.problems(assembly)]


@pytest.mark.parametrize(
    ("resources", "region", "right"),
    [
        (OWN_KEY, "eu-west-1", None),
        (SOURCE_KEY, "us-east-1", None),
        ("*", "eu-west-1", None),
        (OWN_KEY, "us-east-1", "eu-west-1"),
        (SOURCE_KEY, "eu-west-1", "us-east-1"),
        ([OWN_KEY, SOURCE_KEY], "us-east-1", "eu-west-1"),
    ],
)
def test_service_of_a_condition_is_of_the_keys_region(resources, region, right):
    found = faults(resources, {"kms:ViaService": f"s3.{region}.amazonaws.com"})
    assert len(found) == (right is not None)
    for message in found:
        assert "kms:ViaService never holds here" in message
        assert f"s3.{region}.amazonaws.com" in message and message.endswith(f"write {right}")


def test_refuses_an_account_that_is_not_the_stacks_whatever_the_key():
    assert faults(SOURCE_KEY, {"aws:SourceAccount": "444455556666"}) == []
    (message,) = faults(SOURCE_KEY, {"aws:SourceAccount": "111122223333"})
    assert message.endswith("write 444455556666")
