"""docs/security.md names every action that the command asks AWS for with the caller's own
credentials.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import botocore.session
import pytest

from tests.synth.deployments import ROOT
from tests.synth.test_access_stack import SECURITY, actions_in

pytestmark = pytest.mark.synth

PREFIXES = {
    "application-autoscaling": "application-autoscaling",
    "cloudformation": "cloudformation",
    "cloudwatch": "cloudwatch",
    "codebuild": "codebuild",
    "ecr": "ecr",
    "kms": "kms",
    "logs": "logs",
    "pricing": "pricing",
    "s3": "s3",
    "sagemaker": "sagemaker",
    "sagemaker-runtime": "sagemaker",
    "service-quotas": "servicequotas",
    "stepfunctions": "states",
}
"""IAM's name of each service that the command has a client of."""
OTHERWISE = {
    "s3:HeadObject": "s3:GetObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:CopyObject": "s3:PutObject",
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPartCopy": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:DeleteObjects": "s3:DeleteObjectVersion",
}
"""Operations that IAM knows by another name; objects are deleted version by version."""
OF_SEVERAL_SERVICES = {
    "delete_alias": "kms:DeleteAlias",
    "delete_endpoint": "sagemaker:DeleteEndpoint",
    "list_aliases": "kms:ListAliases",
}
"""Methods of several services' clients, and the one that the command calls."""
NO_COMMAND = {"local_cloud", "bench"}
"""What plays AWS itself, and benches of this repository, whose endpoints are made in the local
cloud.
"""


def operations() -> dict[str, str]:
    """IAM's action of every operation of those services, by the method of boto3's client."""
    session, found = botocore.session.get_session(), {}
    for service, prefix in PREFIXES.items():
        for operation in session.get_service_model(service).operation_names:
            action = f"{prefix}:{operation}"
            found[botocore.xform_name(operation)] = OTHERWISE.get(action, action)
    return found | OF_SEVERAL_SERVICES


def called_methods() -> Iterator[str]:
    """The methods that the command's commands call, and the paginators that they ask for."""
    names = ("client.py", "generation_client.py")
    clients = [ROOT / "container" / name for name in names]
    for path in (*clients, *(ROOT / "roundhouse").rglob("*.py")):
        if NO_COMMAND & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield node.func.attr
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "pages":
                yield ast.literal_eval(node.args[1])


def test_the_document_names_every_action_that_callers_need():
    (section,) = re.findall(
        r"\n## What you need yourself\n(.*?)(?:\n## |\Z)",
        SECURITY.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    explanation = actions_in(section)
    known = {method: action for method, action in operations().items() if "_" in method}
    actions = {known[method] for method in called_methods() if method in known}
    assert {"states:StartExecution", "s3:ListBucket", "sagemaker:InvokeEndpoint"} <= actions
    assert actions - explanation == set()
    # The key is asked by S3, the bootstrap roles by the CDK; S3 copies by PutObject; and who names
    # a role in a request passes it. A bearer token is signed here, and SageMaker asks IAM.
    otherwise = ("kms:", "sts:", "iam:PassRole", "sagemaker:CallWithBearerToken")
    assert {item for item in explanation - actions if not item.startswith(otherwise)} == set()
