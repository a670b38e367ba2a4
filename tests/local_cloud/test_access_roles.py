"""The table of roles, executed: every role, by every token, on every action.

What the table allows is allowed, and nothing else.
"""

from __future__ import annotations

import itertools

import pytest

from onboarding import names
from roundhouse_cdk.builds.signing import signer_statements
from tests.local_cloud.access_roles import GITHUB, PROD, STAGING, deploy, token
from tests.local_cloud.authorized_cloud import authorized_cloud, refusal_code
from tests.local_cloud.builder_roles import (
    JOB,
    PROJECT,
    QUANTIZER_JOB,
    QUANTIZER_PROJECT,
    add_builders,
    add_role,
    builder_credentials,
)
from tests.local_cloud.role_actions import actions

pytestmark = pytest.mark.local_cloud

DENIED = {"AccessDenied", "AccessDeniedException", "403"}
MAIN, TOPIC, PULL = "refs/heads/main", "refs/heads/topic", "refs/pull/7/merge"
RUNS = (
    ("pull_request", PULL),
    (f"ref:{MAIN}", MAIN),
    (f"ref:{TOPIC}", TOPIC),
    ("ref:refs/tags/v1", "refs/tags/v1"),
    ("environment:prod-build", PULL),
    ("environment:prod-build", MAIN),
    ("environment:prod", MAIN),
    ("environment:prod", TOPIC),
    ("environment:staging", MAIN),
    ("environment:staging-build", PULL),
)
"""What a workflow runs for: the end of the token's subject, and its git reference."""
BY_NUMBER = f"repo:acme@{GITHUB.owner_id}/models@{GITHUB.repository_id}"
REPOSITORIES = {
    "ours": {},
    "ours by number": {"sub": BY_NUMBER},
    "a fork": {"sub": "repo:evil/models", "repository_id": "666", "repository": "evil/models"},
    "a fork by number": {"sub": "repo:evil@6/models@666", "repository_id": "666"},
    "another of the owner": {"sub": "repo:acme/other", "repository_id": "456790"},
    "our name, taken by another": {"repository_id": "666"},
    "our name by another number": {"sub": "repo:acme@123456/models@666", "repository_id": "666"},
}
"""Whose workflow it is."""
WORKFLOWS = {
    "main": f"acme/models/{names.RUN_WORKFLOW}@{MAIN}",
    "edited": f"acme/models/{names.RUN_WORKFLOW}@{PULL}",
    "another": f"acme/models/.github/workflows/other.yml@{MAIN}",
}
ROLES = ("plan", "drift", "build", "deploy", "promote")
TAKES = {
    ("pull_request", PULL): {"plan"},
    (f"ref:{MAIN}", MAIN): {"drift"},
    ("environment:prod-build", PULL): {"build"},
    ("environment:prod-build", MAIN): {"build"},
    ("environment:prod", MAIN): {"deploy", "promote"},
}
"""Prod's roles that a run of our repository takes."""
OF_RUN_WORKFLOW = {"build", "deploy", "promote"}

LOOKS = {
    "list stacks", "read a template", "list engines", "describe an endpoint", "describe a model",
    "describe scaling", "describe alarms",
}  # fmt: skip
LISTS = {"list engines", "list sources", "list checkpoints"}
READS = LISTS | {"read an engine"}
BUILDS = {
    "read a source", "write a source once", "start the machine", "follow the machine",
    "stop the machine", "look at builds", "stop a build", "read a build's log", "stop a job",
}  # fmt: skip
BUILDERS = READS | {
    "read a source", "read a network", "read a candidate", "write a network once",
    "write a candidate once", "write a timing cache",
}  # fmt: skip
QUANTIZES = {
    "read a source", "read a candidate", "write a candidate once",
    "read a checkpoint",
}  # fmt: skip
SIGNER = names.signer(PROD)
"""The one role of both signers, which the key's policy knows by its name."""
ALLOWED = {
    "plan": LOOKS,
    "drift": (LOOKS - {"describe alarms"}) | READS,
    "build": READS | BUILDS | {"read a checkpoint"},
    "deploy": READS
    | BUILDS
    | (LOOKS - {"describe a model", "describe scaling"})
    | {
        "read a network", "read a checkpoint", "tag an engine", "tag a checkpoint",
        "read an adapter", "write an adapter once", "look at images", "build images",
        "unprotect a stack",
        "assume cdk's deploy", "assume cdk's file-publishing", "assume cdk's lookup",
    },
    "promote": READS
    | {
        "read a network", "write an engine once", "write a network once", "record an engine once",
        "start to upload an engine", "read the source's engine", "read the source's network",
        "list the source's engines", "assume the source's gate", "read a checkpoint",
        "write a checkpoint once", "record a checkpoint once", "read the source's checkpoint",
        "list the source's checkpoints",
    },
    PROJECT: BUILDERS,
    JOB: BUILDERS | {"write a job's work"},
    QUANTIZER_PROJECT: LISTS | QUANTIZES,
    QUANTIZER_JOB: BUILDERS | QUANTIZES | {"write a job's work"},
    SIGNER: READS | {
        "read a candidate", "write an engine once", "record an engine once", "read a checkpoint",
        "write a checkpoint once", "record a checkpoint once", "sign as the signer",
    },
}  # fmt: skip
"""What each of prod's roles, and of its builders, may do, of ACTIONS."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    place = tmp_path_factory.mktemp("roles")
    with authorized_cloud(place / "state") as cloud:
        for environment in (STAGING, PROD):
            deploy(cloud, place / environment.name, environment)
        add_builders(cloud, PROD)
        add_role(cloud, PROD, SIGNER, signer_statements(PROD, has_checkpoints=True))
        yield cloud


def sessions(cloud):
    """Credentials of each of prod's roles and builders."""
    builders = (PROJECT, JOB, QUANTIZER_PROJECT, QUANTIZER_JOB, SIGNER)
    found = {name: builder_credentials(cloud, PROD, name) for name in builders}
    for (context, ref), taken in TAKES.items():
        for role in taken:
            arn = names.pipeline_role_arn(PROD, role)
            found[role] = cloud.assume(arn, token(context, ref))
    return found


def test_exactly_the_table_of_subjects_takes_the_roles(cloud):
    expected, found = {}, {}
    every = itertools.product(RUNS, REPOSITORIES, WORKFLOWS, ROLES)
    for (context, ref), repository, workflow, role in every:
        case = (context, ref, repository, workflow, role)
        claims = dict(REPOSITORIES[repository])
        if "sub" in claims:
            claims["sub"] = f"{claims['sub']}:{context}"
        given = token(context, ref, **claims, job_workflow_ref=WORKFLOWS[workflow])
        found[case] = refusal_code(cloud.assume, names.pipeline_role_arn(PROD, role), given) is None
        expected[case] = (
            role in TAKES.get((context, ref), set())
            and repository.startswith("ours")
            and (workflow == "main" or role not in OF_RUN_WORKFLOW)
        )
    assert {case for case in found if found[case] != expected[case]} == set()
    assert sum(found.values()) == 20


def test_refuses_a_session_longer_than_the_roles(cloud):
    given, arn = token("environment:prod", MAIN), names.pipeline_role_arn(PROD, "deploy")
    role = cloud.root("iam", PROD.account).get_role(RoleName=arn.rpartition("/")[2])["Role"]
    longest = role["MaxSessionDuration"]
    assert refusal_code(cloud.assume, arn, given, DurationSeconds=longest) is None
    assert refusal_code(cloud.assume, arn, given, DurationSeconds=longest + 1) == "ValidationError"


def test_exactly_the_table_of_actions_is_allowed(cloud):
    credentials, known = sessions(cloud), actions(PROD, STAGING)
    assert credentials.keys() == ALLOWED.keys()
    assert set().union(*ALLOWED.values()) < known.keys()
    found = {}
    for role, given in credentials.items():
        clients = {service: cloud.session(service, given) for service, _, _ in known.values()}
        found[role] = {
            name
            for name, (service, method, request) in known.items()
            if refusal_code(getattr(clients[service], method), **request) not in DENIED
        }
    assert found == ALLOWED


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        *((name, names.CANDIDATES_PREFIX) for name in (PROJECT, JOB, QUANTIZER_PROJECT)),
        *((name, names.NETWORKS_PREFIX) for name in (PROJECT, JOB)),
    ],
)
def test_builder_writes_an_object_once(cloud, name, prefix):
    s3 = cloud.session("s3", builder_credentials(cloud, PROD, name))
    put = {"Bucket": names.artifact_bucket(PROD), "Key": f"{prefix}/{name}/x", "Body": b"1"}
    assert refusal_code(s3.put_object, **put, IfNoneMatch="*") is None
    assert refusal_code(s3.put_object, **put, IfNoneMatch="*") == "PreconditionFailed"
    assert refusal_code(s3.put_object, **put) == "AccessDenied"


def test_gate_of_the_source_reads_alarms_alone(cloud):
    promote = sessions(cloud)["promote"]
    reply = cloud.session("sts", promote).assume_role(
        RoleArn=names.pipeline_role_arn(STAGING, "gate"), RoleSessionName="x"
    )
    gate = {
        name
        for name, (service, method, request) in actions(STAGING, PROD).items()
        if refusal_code(getattr(cloud.session(service, reply["Credentials"]), method), **request)
        not in DENIED
    }
    assert gate == {"describe alarms"}
