"""The order of an endpoint's updates, and what is done when one of them fails."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from roundhouse.deploy import deployment
from roundhouse.deploy.stacks import endpoint_stack_name
from roundhouse.errors import DeployFailedError
from roundhouse.processes import Outcome
from stacks.endpoint.change import update_steps
from stacks.endpoint_stack import endpoint_template
from tests.synth import generation_cases
from tests.unit.roundhouse.deploy.whole_session import whole_session

YES = deployment.DeployOptions(yes=True)
IMAGES = {
    name: f"111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-dev/{name}:tag"
    for name in ("triton", "python-server", "python-server-gpu")
}


class Cdk:
    """The cdk command line in memory.

    `did` is what it was asked, `fails` the deploys that it refuses, by their order.
    """

    def __init__(self):
        self.account, self.wanted, self.changed, self.did, self.fails = None, {}, "", [], ()
        self.parameters = []

    def __call__(self, command, on_line=None):
        if "synth" in command.argv:
            return self._synthesise(Path(command.argv[command.argv.index("--output") + 1]))
        folder = Path(command.argv[command.argv.index("--app") + 1])
        templates = self._templates(folder) if "--all" in command.argv else dict(self.wanted)
        self.did.append({name: _scalable_targets(template) for name, template in templates.items()})
        self.parameters.append([part for part in command.argv if part.endswith("=true")])
        if len(self.did) in self.fails:
            return Outcome(code=1, output=f"❌  failed: no. {len(self.did)}")
        self.account.stacks |= templates
        return Outcome(code=0, output=" ✅  dev/Endpoint\n")

    def _synthesise(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        artifacts = {}
        for name, template in self.wanted.items():
            properties = {"templateFile": f"{name}.json", "stackName": name}
            artifacts[name] = {
                "type": "aws:cloudformation:stack",
                "environment": "aws://111122223333/us-east-1",
                "properties": properties,
            }
            (folder / f"{name}.json").write_text(json.dumps(template))
        (folder / "manifest.json").write_text(
            json.dumps({"version": "55.0.0", "artifacts": artifacts})
        )
        return Outcome(code=0, output="")

    def _templates(self, folder):
        artifacts = json.loads((folder / "manifest.json").read_text())["artifacts"]
        return {name: json.loads((folder / f"{name}.json").read_text()) for name in artifacts}


def _scalable_targets(template):
    return sum(
        resource["Type"] == "AWS::ApplicationAutoScaling::ScalableTarget"
        for resource in template["Resources"].values()
    )


@pytest.fixture
def session(tmp_path):
    return whole_session(tmp_path, Cdk())


@pytest.fixture
def cdk(session):
    """Every endpoint is deployed; the first that scales ran on another instance type."""
    wanted = {
        endpoint_stack_name(deployment): endpoint_template(deployment, IMAGES)
        for deployment in session.deployments()
    }
    cdk = session.run
    cdk.account, cdk.wanted = session.clients, wanted
    cdk.changed = next(name for name, template in wanted.items() if _scalable_targets(template))
    before = re.sub(
        r'"InstanceType": "ml\.[^"]*"',
        '"InstanceType": "ml.g4dn.12xlarge"',
        json.dumps(wanted[cdk.changed]),
    )
    session.clients.stacks = {**wanted, cdk.changed: json.loads(before)}
    assert len(update_steps(session.clients.stacks[cdk.changed], wanted[cdk.changed])) == 2
    return cdk


def deploy(session):
    """The last deploy alone: every image and engine is there."""
    return deployment._deploy_endpoints(session, YES, session.deployments(), ("**",))


def test_refused_last_update_gives_the_scaling_back(session, cdk):
    before, cdk.fails = session.clients.stacks[cdk.changed], (2,)
    with pytest.raises(DeployFailedError, match=r"failed: no\. 2"):
        deploy(session)
    assert cdk.did[2:] == [{cdk.changed: 1}]
    assert session.clients.stacks[cdk.changed] == before


def test_refused_last_update_gives_the_adapters_back(session, cdk):
    rows = [{"name": "fr", "source": "adapters/faq", "rank": 8}]
    before, wanted = (
        generation_cases.template(generation_cases.generator(serving={"adapters": adapters}))
        for adapters in (rows, [])
    )
    session.clients.stacks[cdk.changed], cdk.wanted[cdk.changed], cdk.fails = before, wanted, (2,)
    with pytest.raises(DeployFailedError, match=r"failed: no\. 2"):
        deploy(session)
    assert len(cdk.did) == 3 and cdk.did[2].keys() == {cdk.changed}
    assert session.clients.stacks[cdk.changed] == before


def test_refuses_with_the_first_failure_and_says_that_the_scaling_is_still_away(session, cdk):
    cdk.fails = (2, 3)
    with pytest.raises(DeployFailedError, match=r"failed: no\. 2"):
        deploy(session)
    output = session.report.console.file.getvalue()
    assert (
        "may be without its scaling or an adapter until the next deploy" in output
        and "failed: no. 3" in output
    )
