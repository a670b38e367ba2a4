"""Permissions that a deployment adds are shown, and asked for."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from roundhouse.deploy.permissions import added_permissions, require_approval
from roundhouse.errors import DeployFailedError, NotReadyError
from roundhouse.report import Report


def role(*actions, effect="Allow", arns=()):
    statement = {"Effect": effect, "Action": list(actions), "Resource": "*", "Sid": "Any"}
    return {
        "Resources": {
            "Role": {
                "Type": "AWS::IAM::Role",
                "Properties": {
                    "AssumeRolePolicyDocument": {
                        "Statement": {"Effect": "Allow", "Principal": {"Service": "x"}}
                    },
                    "ManagedPolicyArns": list(arns),
                    "Policies": [{"PolicyDocument": {"Statement": [statement]}}],
                },
            }
        }
    }


def resource(kind, **properties):
    return {"Resources": {"Thing": {"Type": kind, "Properties": properties}}}


DOCUMENT = {"Statement": [{"Effect": "Allow", "Action": "s3:*", "Principal": "*"}]}


@pytest.mark.parametrize(
    ("before", "after", "added"),
    [
        (role("s3:GetObject"), role("s3:GetObject", "s3:PutObject"), "s3:PutObject"),
        (role("s3:GetObject"), role("s3:GetObject", arns=["AdministratorAccess"]), "Administrator"),
        (role("s3:GetObject", effect="Deny"), role("s3:PutObject", effect="Deny"), "- AWS::IAM"),
        (
            resource("AWS::S3::BucketPolicy"),
            resource("AWS::S3::BucketPolicy", PolicyDocument=DOCUMENT),
            "s3:*",
        ),
        (resource("AWS::KMS::Key"), resource("AWS::KMS::Key", KeyPolicy=DOCUMENT), "s3:*"),
        (
            resource("AWS::EC2::SecurityGroup"),
            resource("AWS::EC2::SecurityGroup", SecurityGroupIngress=[{"CidrIp": "0.0.0.0/0"}]),
            "0.0.0.0/0",
        ),
        ({"Resources": {}}, resource("AWS::EC2::SecurityGroupIngress", CidrIp="10.0.0.0/8"), "10."),
    ],
)  # fmt: skip
def test_added_grants_are_listed(before, after, added):
    (line,) = added_permissions(before, after)
    assert added in line


def test_every_grant_of_a_new_stack_is_added():
    assert len(added_permissions(None, role("s3:GetObject"))) == 2


def test_the_same_or_fewer_grants_add_nothing():
    many, few = role("s3:GetObject", "s3:PutObject"), role("s3:PutObject", "s3:GetObject")
    assert added_permissions(many, few) == ()
    assert added_permissions(many, {"Resources": {}}) == ()
    assert added_permissions(role("a"), role("b", effect="Deny")) == ()


@pytest.fixture
def approve(tmp_path):
    def approve(lines, **options):
        report = Report(console=Console(file=io.StringIO(), width=200))
        options = {"folder": tmp_path / "permissions", "yes": False, "confirm": None, **options}
        require_approval(report, {"stack-a": lines}, **options)
        return report.console.file.getvalue()

    return approve


def test_permissions_are_shown_and_deployed_after_an_answer(approve):
    shown = approve(["+ Role: s3:*"], confirm=lambda question: True)
    assert shown == "– stack-a adds permissions:\n    + Role: s3:*\n"
    assert approve([]) == ""


def test_with_yes_each_stack_has_one_line_and_its_list_is_in_a_file(approve, tmp_path):
    path = tmp_path / "permissions" / "stack-a.txt"
    shown = approve(["+ Role: s3:*", "+ Role: sns:Publish"], yes=True)
    assert shown == f"– stack-a adds 2 permissions, listed in {path}\n"
    assert path.read_text() == "+ Role: s3:*\n+ Role: sns:Publish\n"
    assert approve([], yes=True) == ""


def test_refuses_to_deploy_with_yes_where_the_list_cannot_be_written(approve, tmp_path):
    (tmp_path / "permissions").write_text("a file")
    with pytest.raises(NotReadyError, match=r"stack-a\.txt: cannot be written"):
        approve(["+ Role: s3:*"], yes=True)


def test_refuses_permissions_that_nobody_approves(approve):
    with pytest.raises(DeployFailedError, match=r"standard input is no terminal.*add --yes"):
        approve(["+ Role: s3:*"])
    with pytest.raises(DeployFailedError, match="were not approved"):
        approve(["+ Role: s3:*"], confirm=lambda question: False)
