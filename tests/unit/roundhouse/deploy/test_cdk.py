"""The cdk command line that is run, what is read from its words, and assemblies for it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from roundhouse.deploy import cdk
from roundhouse.deploy.cdk import stack_artifacts, write_assembly
from roundhouse.errors import DeployFailedError, NotReadyError
from roundhouse.processes import Outcome
from tests.unit.roundhouse.build_cloud import session_of
from tests.unit.roundhouse.engines import copied_tree

CHANGED = (
    "\x1b[32m ✅  local/Builds (roundhouse-local-builds)\x1b[39m\n"
    " ✅  local/Foundation (roundhouse-local-foundation) (no changes)\n"
)
FAILED = (
    " ✅  local/Foundation (no changes)\n"
    "❌  local/Endpoint-a failed: ToolkitError: The stack failed to deploy: "
    "UPDATE_ROLLBACK_COMPLETE: never healthy.\n"
)


class CloudFormation:
    def __init__(self, bootstrapped: bool) -> None:
        self.bootstrapped = bootstrapped

    def describe_stacks(self, StackName):
        if not self.bootstrapped:
            error = {"Code": "ValidationError", "Message": f"Stack {StackName} does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")
        return {}


@pytest.fixture
def session(tmp_path):
    tree = copied_tree(tmp_path)
    (tree / "node_modules" / ".bin").mkdir(parents=True)
    (tree / "node_modules" / ".bin" / "cdk").write_text("")
    commands, outcome = [], {"value": Outcome(code=0, output=CHANGED)}

    def run(command, on_line=None):
        commands.append(command)
        return outcome["value"]

    run.commands, run.outcome = commands, outcome
    session = session_of(tree, lambda service: CloudFormation(bootstrapped=False), run=run)
    return replace(session, variables={"A": "b"})


def test_a_deploy_reads_changed_and_unchanged_stacks(session, tmp_path):
    assert cdk.deploy(session, tmp_path) == cdk.Deployed(
        changed=("local/Builds",), unchanged=("local/Foundation",)
    )
    (command,) = session.run.commands
    assert command.environment == {"A": "b"}
    assert "**" in command.argv and str(tmp_path) in command.argv and "never" in command.argv


def test_a_tree_that_lies_elsewhere_reaches_the_application(session, tmp_path):
    elsewhere = replace(session.paths, tree=tmp_path / "elsewhere")
    cdk.synthesise(replace(session, paths=elsewhere))
    argv = session.run.commands[-1].argv
    assert f"root={tmp_path / 'elsewhere'}" in argv and "env=local" in argv
    cdk.synthesise(session)
    assert not any(word.startswith("root=") for word in session.run.commands[-1].argv)


def test_the_end_of_a_stack_is_read_from_a_line():
    first, second = CHANGED.splitlines()
    assert cdk.finished_stack(first) == "local/Builds"
    assert cdk.finished_stack(second) == "local/Foundation"
    assert cdk.finished_stack("local/Builds: deploying...") is None


def test_refuses_a_failed_deploy_with_cloudformations_reason_and_the_log(session):
    session.run.outcome["value"] = Outcome(code=1, output=FAILED)
    with pytest.raises(
        DeployFailedError,
        match=r"UPDATE_ROLLBACK_COMPLETE: never healthy\. Log: .*cdk-deploy-local\.log",
    ):
        cdk.deploy(session, session.paths.build)
    assert "never healthy" in (session.paths.build / "logs" / "cdk-deploy-local.log").read_text()


def test_refuses_with_the_message_of_the_resource_itself():
    output = (
        "x | 3:13:43 AM | UPDATE_FAILED | AWS::IAM::Role | local/A/Role (Role) Resource "
        "update cancelled\n"
        "x | 3:13:43 AM | UPDATE_FAILED | AWS::SageMaker::Endpoint | local/A/Endpoint "
        "(Endpoint) never healthy.\n"
        "❌  roundhouse-local-endpoint-a failed to deploy\n"
    )
    expected = (
        "roundhouse-local-endpoint-a failed to deploy: local/A/Endpoint (Endpoint) never healthy"
    )
    assert cdk.failure_reason(output) == expected


def test_refuses_an_endpoint_without_an_engine_with_synths_own_words():
    output = (
        "[Error at /local/Endpoint-a] no engine: run `roundhouse build --env local "
        "--model a`\nFound errors\n"
    )
    assert cdk.failure_reason(output) == output.splitlines()[0]


def test_a_bootstrap_happens_once(session):
    assert cdk.bootstrap(session)
    assert session.run.commands[0].argv[1:3] == ("bootstrap", "aws://000000000000/us-east-1")
    there = replace(session, clients=lambda service: CloudFormation(bootstrapped=True))
    assert not cdk.bootstrap(there)
    assert len(session.run.commands) == 1


def test_refuses_a_missing_command_line(session):
    session.paths.cdk.unlink()
    with pytest.raises(NotReadyError, match=r"`npm ci` in .* installs it"):
        cdk.deploy(session, session.paths.build)


STACK = {
    "type": "aws:cloudformation:stack",
    "environment": "aws://000000000000/us-east-1",
    "dependencies": ["Foundation", "A.assets"],
    "displayName": "local/A",
    "properties": {
        "templateFile": "A.template.json",
        "stackName": "stack-a",
        "tags": {"roundhouse-environment": "local"},
        "assumeRoleArn": "arn:aws:iam::000000000000:role/deploy",
        "stackTemplateAssetObjectUrl": "s3://assets/digest-of-another-template.json",
        "additionalDependencies": ["A.assets"],
    },
}


@pytest.fixture
def synthesised(tmp_path):
    nested = tmp_path / "cdk" / "assembly-local"
    nested.mkdir(parents=True)
    outer = {
        "assembly-local": {
            "type": "cdk:cloud-assembly",
            "properties": {"directoryName": "assembly-local"},
        }
    }
    (nested.parent / "manifest.json").write_text(
        json.dumps({"version": "55.0.0", "artifacts": outer})
    )
    inner = {
        "A": STACK,
        "A.assets": {"type": "cdk:asset-manifest", "properties": {"file": "A.assets.json"}},
    }
    (nested / "manifest.json").write_text(json.dumps({"version": "55.0.0", "artifacts": inner}))
    (nested / "A.template.json").write_text('{"Resources": {"After": {}}}')
    return nested.parent


def test_stacks_of_a_nested_assembly_are_found_by_name(synthesised):
    (artifact,) = stack_artifacts(synthesised).values()
    assert stack_artifacts(synthesised).keys() == {"stack-a"}
    assert artifact.template == {"Resources": {"After": {}}}


def test_written_stack_keeps_its_roles_and_tags_and_names_no_uploaded_template(
    synthesised, tmp_path
):
    folder = tmp_path / "steps"
    write_assembly(folder, stack_artifacts(synthesised), {"stack-a": {"Resources": {"First": {}}}})
    manifest = json.loads((folder / "manifest.json").read_text())
    written = manifest["artifacts"]["A"]
    assert manifest["version"] == "55.0.0"
    assert "dependencies" not in written
    kept = {
        key: value
        for key, value in STACK["properties"].items()
        if key not in ("stackTemplateAssetObjectUrl", "additionalDependencies")
    }
    assert written["properties"] == kept
    assert stack_artifacts(folder)["stack-a"].template == {"Resources": {"First": {}}}


def test_refuses_a_folder_that_is_a_file(synthesised, tmp_path):
    (tmp_path / "steps").write_text("")
    with pytest.raises(NotReadyError, match=r"steps: cannot be written"):
        write_assembly(tmp_path / "steps", stack_artifacts(synthesised), {})
