"""An account of the local cloud where checkpoints of a tiny Llama are built, by real jobs.

The jobs run in the environment of requirements/quantizer.txt, on a Llama of 6 MB.
"""

from __future__ import annotations

import io
import json

import pytest
from aws_cdk import App
from rich.console import Console

from local_cloud import lifecycle
from onboarding import names
from onboarding.generation_resolve import generation_deployments
from onboarding.tree import read_tree
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.report import Report
from roundhouse.session import Session
from stacks.environment_stage import EnvironmentStage, read_sources
from tests.local_cloud.account import BUCKET, ROOT, Account
from tests.text_generation.build.chat_tree import write_tree


@pytest.fixture(scope="session")
def session(tmp_path_factory):
    """An account with foundation and builds, where the tree's checkpoints are to be built."""
    root = write_tree(tmp_path_factory.mktemp("tree"))
    state = tmp_path_factory.mktemp("cloud")
    account = Account(lifecycle.start(ROOT, state), state)
    account.client("s3").create_bucket(Bucket=BUCKET)
    tree = read_tree(root)
    assert not tree.faults, list(map(str, tree.faults))
    session = Session(
        paths=Paths(code=ROOT, tree=root, build=state),
        environment=tree.environments["local"],
        variables={},
        clients=account.client,
        run=Processes(),
        report=Report(console=Console(file=io.StringIO(), width=200)),
    )
    app = App(outdir=str(state / "cdk.out"), analytics_reporting=False)
    EnvironmentStage(
        app,
        environment=session.environment,
        deployments=(),
        generators=generation_deployments(tree, "local"),
        sources=read_sources(ROOT),
    )
    app.synth()
    for part in ("foundation", "builds"):
        deploy(account, names.stack_name(session.environment, part), state / "cdk.out")
    yield session
    account.close()
    lifecycle.stop(state)


def deploy(account, stack, folder):
    """Deploy a synthesized stack by way of S3, as cdk does: it is above 51,200 bytes."""
    (file,) = folder.rglob(f"*{stack.rpartition('-')[2].capitalize()}*.template.json")
    text = json.dumps({"Resources": json.loads(file.read_text())["Resources"]})
    s3, formation = account.client("s3"), account.client("cloudformation")
    s3.put_object(Bucket=BUCKET, Key=f"{stack}.json", Body=text)
    url = f"{account.address.endpoint_url}/{BUCKET}/{stack}.json"
    formation.create_stack(StackName=stack, TemplateURL=url, Capabilities=["CAPABILITY_NAMED_IAM"])
    status = account.settled(stack)
    assert status == "CREATE_COMPLETE", account.reason(stack)
