"""Roles of the pipeline: who may take each, and that it may do what its commands call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from onboarding.aws_limits import GITHUB_ISSUER
from onboarding.environment_spec import EnvironmentSpec, GithubSpec, GitlabSpec, SlackSpec
from roundhouse_cdk.build_project import CPU, QUANTIZER_ROUTE
from roundhouse_cdk.build_roles import job_statements, project_statements, signer_statements
from tests.synth.assembly import Stacks, synthesized
from tests.synth.deployments import ROOT, environment
from tests.synth.security import items_of

pytestmark = pytest.mark.synth

DEV = environment("dev")
SECURITY = ROOT / "docs" / "security.md"
ACTIONS = re.compile(r"`([a-z0-9-]+): ([A-Z]\w+(?:, [A-Z]\w+)*)`")
"""A service and its actions, as the page has them."""
GITHUB = GithubSpec(repository="acme/models", repository_id=456789, owner_id=123456)
MAIN = "refs/heads/main"
WORKFLOW = f"acme/models/.github/workflows/roundhouse-run.yml@{MAIN}"
TRUSTS = {
    "plan": {"sub": "pull_request"},
    "drift": {"sub": f"ref:{MAIN}", "ref": MAIN},
    "build": {"sub": "environment:dev-build", "job_workflow_ref": WORKFLOW},
    "deploy": {"sub": "environment:dev", "job_workflow_ref": WORKFLOW, "ref": MAIN},
    "promote": {"sub": "environment:dev", "job_workflow_ref": WORKFLOW, "ref": MAIN},
}
"""What a token says of the role that it takes, beside audience and repository."""
READS = "whatever reads the bucket"
LOOKS = "`plan --against deployed`, and a look at what runs"
ROWS = {
    "plan": (LOOKS,),
    "drift": ("`drift`", "`make prices`"),
    "build": (READS, "`build`", "engines", "Ctrl-C while engines are built"),
    "deploy": ("`deploy`", "quotas, which `deploy` compares; it says so and goes on without these"),
    "promote": ("`promote`",),
}
"""The rows of docs/security.md that name what a role's commands call."""
KINDS = ("Endpoint", "EndpointConfig", "Model")
BESIDE = {"deploy": {"sts:AssumeRole"}}
"""What a role may do that its commands do not call themselves: the cdk does."""


def spec(name: str, account: str, **changes) -> EnvironmentSpec:
    changes = {"name": name, "account": account, "github": GITHUB, **changes}
    return environment("dev").model_copy(update=changes)


def stacks(folder, own: EnvironmentSpec, *others: EnvironmentSpec) -> Stacks:
    return synthesized(folder, own, (), environments={item.name: item for item in (own, *others)})


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[Stacks, Stacks]:
    """Environment staging of one account, and dev, which promotes from it, of another."""
    source = spec("staging", "444455556666")
    slack = SlackSpec(workspace="T0123ABCDEF", channel="C0123ABCDEF")
    dev = spec("dev", "111122223333", promotes_from="staging", alarm_slack=slack)
    folders = (tmp_path_factory.mktemp(name) for name in ("staging", "dev"))
    return stacks(next(folders), source, dev), stacks(next(folders), dev, source)


def roles(found: Stacks) -> dict[str, dict]:
    """The roles of the access stack, by the last part of their names."""
    properties = found["Access"].properties("AWS::IAM::Role").values()
    return {item["RoleName"].rsplit("-", 1)[-1]: item for item in properties}


def statements(role: dict) -> list[dict]:
    (policy,) = role["Policies"]
    return policy["PolicyDocument"]["Statement"]


def actions_of(role: dict) -> set[str]:
    return {action for item in statements(role) for action in items_of(item["Action"])}


def actions_in(text: str) -> set[str]:
    """Return the actions that a text of the page names: `s3: GetObject, ListBucket`."""
    return {
        f"{service}:{action}"
        for service, listed in ACTIONS.findall(text)
        for action in listed.split(", ")
    }


def documented() -> dict[str, set[str]]:
    """The actions of each row of the callers' table, with the rows that it refers to."""
    text = SECURITY.read_text(encoding="utf-8")
    section = text.split("\n## What you need yourself\n")[1].split("\n## ")[0]
    found: dict[str, set[str]] = {}
    for line in section.splitlines():
        cells = line.strip("| ").split(" | ", 1)
        actions = actions_in(line)
        if line.startswith("| ") and actions:
            if "all of the above" in line:
                actions |= set().union(*found.values())
            if "the `Describe` actions of `status` on SageMaker" in line:
                actions |= {f"sagemaker:Describe{kind}" for kind in KINDS}
            if "the first row" in line:
                actions |= found[READS]
            found[cells[0]] = actions
    return found


@pytest.mark.parametrize("name", TRUSTS)
def test_role_is_for_one_repository_in_one_context(pair, name):
    (statement,) = roles(pair[1])[name]["AssumeRolePolicyDocument"]["Statement"]
    claims = dict(TRUSTS[name])
    context = claims.pop("sub")
    forms = [f"repo:acme/models:{context}", f"repo:acme@123456/models@456789:{context}"]
    expected = {"aud": "sts.amazonaws.com", "sub": forms, "repository_id": "456789", **claims}
    assert statement == {
        "Effect": "Allow",
        "Principal": {"Federated": {"Ref": "GithubProvider"}},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {
            "StringEquals": {f"{GITHUB_ISSUER}:{key}": value for key, value in expected.items()}
        },
    }


GITLAB = {
    "drift": ("StringEquals", "main"),
    "build": ("StringLike", "*"),
    "deploy": ("StringEquals", "main"),
    "promote": ("StringEquals", "main"),
}
"""How a GitLab role asks for the branch of a pipeline, and for which; merge requests have one."""


@pytest.fixture(scope="module")
def gitlab(tmp_path_factory) -> Stacks:
    """An environment whose pipeline runs in a GitLab of one's own."""
    forge = GitlabSpec(project="acme/ml/models", host="gitlab.acme.example")
    own = {"github": None, "gitlab": forge}
    dev = spec("dev", "111122223333", promotes_from="staging", **own)
    return stacks(tmp_path_factory.mktemp("gitlab"), dev, spec("staging", "111122223333", **own))


def test_gitlabs_roles_are_for_branches_of_one_project(gitlab, pair):
    provider = gitlab["Access"].only("AWS::IAM::OIDCProvider")
    assert provider == {
        "ClientIdList": ["sts.amazonaws.com"],
        "Url": "https://gitlab.acme.example",
    }
    found = roles(gitlab)
    assert found.keys() == GITLAB.keys()
    for name, (operator, branch) in GITLAB.items():
        (statement,) = found[name]["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Federated": {"Ref": "GitlabProvider"}}
        claims = {
            (operator, "sub"): f"project_path:acme/ml/models:ref_type:branch:ref:{branch}",
            ("StringEquals", "aud"): "sts.amazonaws.com",
        }
        assert claims == {
            (test, key.removeprefix("gitlab.acme.example:")): value
            for test, keys in statement["Condition"].items()
            for key, value in keys.items()
        }
        if name != "promote":
            assert actions_of(found[name]) == actions_of(roles(pair[1])[name])


@pytest.mark.parametrize("name", ROWS)
def test_role_may_do_what_its_commands_call_and_nothing_else(pair, name):
    rows = documented()
    wanted = set().union(*(rows[row] for row in ROWS[name])) | BESIDE.get(name, set())
    allowed = actions_of(roles(pair[1])[name])
    if name == "promote":
        allowed |= actions_of(roles(pair[0])["gate"])
    assert allowed == wanted


REACHES = {
    "plan": ("", "", ""),
    "drift": ("", "", ""),
    "build": ("checkpoints engines sources", "sources", ""),
    "deploy": ("adapters checkpoints engines networks sources", "adapters sources", ""),
    "promote": ("checkpoints engines networks", "checkpoints engines networks", ""),
}
BUILDERS = {
    "project": (
        lambda: project_statements(DEV, CPU),
        ("candidates engines networks onnx sources timing-caches", "candidates networks",
         "timing-caches"),
    ),
    "job": (
        lambda: job_statements(DEV, CPU.image),
        ("candidates engines jobs networks onnx sources timing-caches", "candidates networks",
         "jobs timing-caches"),
    ),
    "quantizer's project": (
        lambda: project_statements(DEV, QUANTIZER_ROUTE),
        ("candidates checkpoints onnx sources", "candidates", ""),
    ),
    "signer": (
        lambda: signer_statements(DEV, has_checkpoints=True),
        ("candidates checkpoints engines", "checkpoints engines", ""),
    ),
}  # fmt: skip
"""Prefixes of the bucket that a role reads, that it writes once, and that it overwrites."""


def reach_of(policy: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    """The prefixes that statements allow reads, conditional writes and other writes of."""
    found: dict[tuple[str, bool], set[str]] = {}
    for item in policy:
        for action in items_of(item["Action"]):
            paths = {
                path.partition("/")[2].partition("/")[0] for path in items_of(item["Resource"])
            }
            found.setdefault((action, "Condition" in item), set()).update(paths)
    keys = (("s3:GetObject", False), ("s3:PutObject", True), ("s3:PutObject", False))
    read, once, over = (" ".join(sorted(found.get(key, ()))) for key in keys)
    return read, once, over


def test_roles_and_builders_reach_their_own_prefixes_and_replace_nothing_published(pair):
    found = {name: reach_of(statements(role)) for name, role in roles(pair[1]).items()}
    assert found == REACHES
    assert {name: reach_of(policy()) for name, (policy, _) in BUILDERS.items()} == {
        name: expected for name, (_, expected) in BUILDERS.items()
    }
    assert actions_of(roles(pair[0])["gate"]) == {
        "cloudwatch:DescribeAlarmHistory",
        "cloudwatch:DescribeAlarms",
    }


def test_source_lets_the_promote_role_read_what_is_promoted_alone(pair):
    template = pair[0]["Foundation"]
    policies = [
        template.only("AWS::S3::BucketPolicy")["PolicyDocument"],
        *(key["KeyPolicy"] for key in template.properties("AWS::KMS::Key").values()),
    ]
    found = {
        item["Sid"]: item
        for policy in policies
        for item in policy["Statement"]
        if item.get("Sid", "").endswith("Promoted")
    }
    assert {name: item["Action"] for name, item in found.items()} == {
        "ReadPromoted": "s3:GetObject",
        "ListPromoted": "s3:ListBucket",
        "DecryptPromoted": "kms:Decrypt",
    }
    role = ["arn:aws:iam::111122223333:role/roundhouse-dev-promote"]
    for item in found.values():
        assert item["Principal"] == {"AWS": "arn:aws:iam::111122223333:root"}
        assert item["Condition"]["ArnEquals"] == {"aws:PrincipalArn": role}
    assert {path.partition("/")[2] for path in found["ReadPromoted"]["Resource"]} == {
        "checkpoints/*",
        "engines/*",
        "networks/*",
    }


def test_sessions_that_build_deploy_or_promote_last_as_long_as_a_build_may(tmp_path):
    for minutes, seconds in ((5, 3600), (240, 14_400), (2160, 21_600)):
        builds = environment("dev").builds.model_copy(update={"timeout_minutes": minutes})
        source = spec("staging", "111122223333")
        own = spec("dev", "111122223333", builds=builds, promotes_from="staging")
        found = roles(stacks(tmp_path / str(minutes), own, source))
        assert {name: role["MaxSessionDuration"] for name, role in found.items()} == {
            "plan": 3600, "drift": 3600, "build": seconds, "deploy": seconds, "promote": seconds,
        }  # fmt: skip


def test_policies_of_a_role_fit_into_iams_limit(pair):
    """All inline policies have 10,240 characters, white space apart. Source: IAM quotas."""
    for found in pair:
        for role in roles(found).values():
            assert len(json.dumps(role["Policies"], separators=(",", ":"))) < 10_240
