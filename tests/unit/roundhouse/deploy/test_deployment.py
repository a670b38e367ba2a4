"""The order of a deployment in AWS, of all endpoints or some; a failure leaves the rest alone."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onboarding.fault import FaultsError
from roundhouse.cli import app as cli
from roundhouse.deploy import deployment
from roundhouse.deploy.builds import engines
from roundhouse.errors import BuildFailedError, DeployFailedError, RoundhouseError
from tests.unit.roundhouse.deploy.whole_session import whole_session
from tests.unit.roundhouse.engines import copied_tree

YES = deployment.DeployOptions(yes=True)
MARK = {"Key": "roundhouse", "Value": "unreferenced"}
EARLY, ALL = "deploy */Foundation */Images */Builds", "deploy **"


@pytest.fixture
def session(tmp_path):
    return whole_session(tmp_path)


def test_missing_images_are_built_after_the_foundation_and_before_the_endpoints(session):
    done = deployment.deploy(session, YES)
    assert session.clients.did == [EARLY, "build roundhouse-dev-build-images", ALL]
    assert done.images == ("builder-cpu", "builder-gpu", "triton") and done.built == ()


def test_a_second_deploy_builds_no_image_and_deploys_once(session):
    deployment.deploy(session, YES)
    session.clients.did.clear()
    assert deployment.deploy(session, YES).images == ()
    assert session.clients.did == [ALL]


def test_refuses_to_deploy_endpoints_whose_image_was_not_built(session):
    session.clients.fails = "triton: docker build ended with 1: no space left on device."
    with pytest.raises(
        BuildFailedError, match=r"triton: docker build ended with 1.*Log: https://logs.example/1"
    ):
        deployment.deploy(session, YES)
    assert ALL not in session.clients.did


def test_a_mark_on_what_a_lock_names_is_taken_off_before_deploying(session):
    (name, *_) = session.clients.objects
    session.clients.tags[name] = [MARK]
    deployment.deploy(session, YES)
    assert session.clients.did.index("untagged model.tar.gz") < session.clients.did.index(ALL)
    assert session.clients.tags == {}


def test_refuses_a_lock_whose_archive_is_gone_and_deploys_no_endpoint(session):
    session.clients.objects.pop(next(iter(session.clients.objects)))
    with pytest.raises(
        DeployFailedError,
        match=r"names this archive and it is not there; `roundhouse build --env dev --model",
    ):
        deployment.deploy(session, YES)
    assert ALL not in session.clients.did


@pytest.mark.parametrize(
    ("stack", "is_refused"), [("roundhouse-dev-foundation", True), ("dev-Team", False)]
)
def test_refuses_errors_in_our_templates_before_anything_changes(session, stack, is_refused):
    template = {"Resources": {"Config": {"Type": "AWS::SageMaker::EndpointConfig", "Properties": {
        "ProductionVariants": [
            {"ModelName": "m", "VariantName": "a", "InstanceType": "ml.g5.wrong",
             "InitialInstanceCount": 1},
        ],
    }}}}  # fmt: skip
    properties = {"templateFile": "a.template.json", "stackName": stack}
    artifact = {
        "type": "aws:cloudformation:stack",
        "environment": "aws://000000000000/us-east-1",
        "displayName": "dev/Foundation",
        "properties": properties,
    }
    manifest = {"version": "55.0.0", "artifacts": {"Foundation": artifact}}

    def run(command, on_line=None):
        outcome = session.clients.run(command, on_line)
        if "synth" in command.argv:
            folder = Path(command.argv[command.argv.index("--output") + 1])
            (folder / "manifest.json").write_text(json.dumps(manifest))
            (folder / "a.template.json").write_text(json.dumps(template))
        return outcome

    session = replace(session, run=run)
    if not is_refused:
        deployment.deploy(session, YES)
        assert ALL in session.clients.did
        return
    with pytest.raises(
        RoundhouseError, match=r"(?s)1 error in the templates; nothing was.*ml.g5.wrong"
    ):
        deployment.deploy(session, YES)
    assert session.clients.did == []


@pytest.mark.parametrize(
    ("status", "way_out"),
    [
        ("UPDATE_ROLLBACK_FAILED", "continue-update-rollback --stack-name roundhouse-dev-images"),
        ("ROLLBACK_FAILED", "aws cloudformation delete-stack --stack-name roundhouse-dev-images"),
        ("CREATE_FAILED", "aws cloudformation delete-stack --stack-name roundhouse-dev-images"),
        ("DELETE_FAILED", "--retain-resources"),
    ],
)  # fmt: skip
def test_refuses_a_stack_that_takes_no_update_before_cdk_runs(session, status, way_out):
    session.clients.statuses["roundhouse-dev-images"] = status
    with pytest.raises(DeployFailedError, match=f"is {status} .because of it.*{way_out}"):
        deployment.deploy(session, YES)
    assert session.clients.did == []


def test_a_stack_whose_first_creation_was_rolled_back_is_created_again(session):
    session.clients.statuses["roundhouse-dev-images"] = "ROLLBACK_COMPLETE"
    deployment.deploy(session, YES)
    assert session.clients.did[0] == "unprotected roundhouse-dev-images"
    assert "deleted and created again" in session.report.console.file.getvalue()


@pytest.fixture
def one_endpoint(tmp_path):
    """The session of one endpoint; what was run is in `commands`."""
    commands = []
    whole = whole_session(tmp_path)

    def run(command, on_line=None):
        commands.append(command)
        return whole.run(command, on_line)

    run.commands = commands
    return replace(whole, endpoints=("sentence-embedder",), run=run)


def test_session_of_some_endpoints_is_theirs_alone(one_endpoint):
    def names_of(*endpoints):
        return [d.name for d in replace(one_endpoint, endpoints=endpoints).deployments()]

    assert names_of("sentence-embedder") == ["sentence-embedder"]
    assert names_of() == ["sentence-embedder", "text-shared"]
    message = r"unknown endpoint, given text-share;.*did you mean 'text-shared'"
    with pytest.raises(FaultsError, match=message):
        names_of("text-share")


def test_session_of_all_names_no_endpoint(one_endpoint):
    deployment.deploy(replace(one_endpoint, endpoints=()), YES)
    words = [word for command in one_endpoint.run.commands for word in command.argv]
    assert not any(word.startswith("endpoint=") for word in words)


def test_some_endpoints_are_built_verified_synthesised_and_deployed_alone(one_endpoint):
    """But for the stacks that builds need, which are synthesised whole."""
    every = replace(one_endpoint, endpoints=())
    targets = [target for item in every.deployments() for target in item.targets]
    other = next(t for t in targets if t.model.name == "sentence-embedder-fp32")
    del one_endpoint.clients.objects[other.lock_entry.archive.path]
    assert engines.missing_engines(one_endpoint) == ()
    (request,) = engines.missing_engines(every)
    assert request.key == other.engine_key
    done = deployment.deploy(one_endpoint, YES)
    assert done.verified == 1 and done.built == ()
    early, *_, synth, deploy = [c.argv for c in one_endpoint.run.commands if "git" not in c.argv]
    assert not any(word.startswith("endpoint=") for word in early) and "*/Images" in early
    assert synth[synth.index("endpoint=sentence-embedder") - 1] == "-c" and "**" in synth
    assert "**" in deploy and deploy[deploy.index("--concurrency") + 1] == "1"


def test_refuses_an_unknown_endpoint_in_one_sentence(tmp_path, monkeypatch, capsys):
    words = ["deploy", "--env", "dev", "--root", str(copied_tree(tmp_path))]
    monkeypatch.setattr(sys, "argv", ["roundhouse", *words, "--endpoint", "sentence-embeddr"])
    assert cli.exit_code() == 1
    message = " ".join(capsys.readouterr().err.split())
    assert message.startswith("models: unknown endpoint, given sentence-embeddr")
    assert message.endswith("'sentence-embedder'?")
