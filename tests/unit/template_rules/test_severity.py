"""An error is what AWS refuses, what never works, or what is open; what is only wider than it need
be is a warning.
"""

from __future__ import annotations

import pytest

from template_rules.checking import checked
from tests.unit.template_rules.cases import template

pytestmark = pytest.mark.unit

STATEMENT = "Role.Policies.0.PolicyDocument.Statement.0"
BLOCK = "Bucket.PublicAccessBlockConfiguration"
INGRESS = "Group.SecurityGroupIngress.0"
WIDGET = "Board.DashboardBody.Fn::ToJsonString.widgets.1"
SERVED = {
    "Type": "AWS::Serverless::Function",
    "OpenApiVersion": "3.0.1",
    "Properties": {"CodeUri": "a"},
}
SEVERITIES = (
    ("RH017", "error", "stores", {"$.Resources.Queue.Tags": []}),
    (
        "RH017",
        "warning",
        "stores",
        {"$.Resources.Served": SERVED, "$.Transform": "AWS::Serverless-2016-10-31"},
    ),
    ("RH212", "error", "dashboard", {f"{WIDGET}.width": 25}),
    ("RH212", "warning", "dashboard", {f"{WIDGET}.x": 13}),
    ("RH220", "error", "hosting", {f"{STATEMENT}.Action": "*"}),
    ("RH220", "error", "hosting", {f"{STATEMENT}.Action": "s3:*", f"{STATEMENT}.Resource": "*"}),
    ("RH220", "warning", "hosting", {f"{STATEMENT}.Action": "s3:*"}),
    ("RH222", "error", "hosting", {f"{STATEMENT}.Action": "s3:*", f"{STATEMENT}.Resource": "*"}),
    (
        "RH222",
        "error",
        "hosting",
        {f"{STATEMENT}.Action": "iam:PassRole", f"{STATEMENT}.Resource": "*"},
    ),
    ("RH222", "warning", "hosting", {f"{STATEMENT}.Resource": "*"}),
    ("RH223", "error", "hosting", {f"{STATEMENT}.Action": "s3-GetObject"}),
    ("RH223", "error", "hosting", {f"{STATEMENT}.Action": "s3:GetObjects"}),
    ("RH223", "warning", "hosting", {f"{STATEMENT}.Action": "s3:ListObjects"}),
    ("RH223", "warning", "hosting", {f"{STATEMENT}.Action": "s3:Fetch*"}),
    (
        "RH224",
        "error",
        "hosting",
        {"Role.ManagedPolicyArns": ["arn:aws:iam::aws:policy/AdministratorAccess"]},
    ),
    (
        "RH224",
        "warning",
        "hosting",
        {"Role.ManagedPolicyArns": ["arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"]},
    ),
    (
        "RH225",
        "error",
        "hosting",
        {STATEMENT: {"Effect": "Allow", "NotAction": "iam:*", "Resource": "arn:aws:s3:::a"}},
    ),
    (
        "RH225",
        "error",
        "hosting",
        {STATEMENT: {"Effect": "Allow", "Action": "s3:*", "NotResource": "arn:aws:s3:::a"}},
    ),
    (
        "RH225",
        "warning",
        "hosting",
        {STATEMENT: {"Effect": "Allow", "Action": "s3:GetObject", "NotResource": "arn:aws:s3:::a"}},
    ),
    ("RH230", "error", "stores", {"Bucket.BucketEncryption": None}),
    ("RH231", "error", "stores", {f"{BLOCK}.BlockPublicAcls": False}),
    ("RH231", "error", "stores", {BLOCK: {}}),
    ("RH231", "error", "stores", {BLOCK: None}),
    (
        "RH239",
        "error",
        "stores",
        {INGRESS: {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0"}},
    ),
    (
        "RH239",
        "warning",
        "stores",
        {INGRESS: {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "CidrIp": "0.0.0.0/0"}},
    ),
)


@pytest.mark.parametrize(("rule", "severity", "base", "change"), SEVERITIES)
def test_severity(rule, severity, base, change):
    found = checked([template(base, change)]).findings
    assert [each.severity for each in found if each.rule == rule] == [severity]


def test_what_may_be_written_never_names_what_only_aws_writes():
    found = checked([template("stores", {"Bucket.Name": "a"})]).findings
    (unknown,) = [each for each in found if each.rule == "RH030"]
    assert "Arn" not in unknown.allowed.split(", ")
    assert unknown.way_out == "did you mean BucketName?"
