"""`roundhouse build` of a text generator in the local cloud: real jobs, the real signer, the lock.

The jobs run in the environment of requirements/quantizer.txt, on a Llama of 6 MB.
"""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from aws_cdk import App
from rich.console import Console

from local_cloud import lifecycle
from onboarding import names, signature
from onboarding.checkpoint import checkpoint_sha256
from onboarding.generation_resolve import generation_deployments
from onboarding.text_generation.checkpoint_record import RECORD_NAME, record_sha256
from onboarding.tree import read_tree
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.checkpoint_requests import CheckpointRequest, missing_checkpoints
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.report import Report
from roundhouse.session import Session
from stacks.access import arns
from stacks.environment_stage import EnvironmentStage, read_sources
from tests.local_cloud.account import BUCKET, ROOT, Account

PYTHON = ROOT / ".venvs" / "quantizer" / "bin" / "python"
TEXTS = ROOT / "onboarding/data/texts/calibration.txt"
ENVIRONMENT = {
    "name": "local",
    "account": "000000000000",
    "region": "us-east-1",
    "platform": "triton-24.10-cpu",
    "builds": {"poll_seconds": 1, "at_once": 1},
}


def spec_of(checkpoint: Path) -> dict:
    return {
        "name": "chat",
        "task": "text-generation",
        "source": {"checkpoint": "models/tiny", "sha256": checkpoint_sha256(checkpoint)},
        "context": {"max_model_len": 512, "prompt_p95": 256, "output_p95": 64},
        "slo": {"ttft_p95_ms": 2000, "itl_p95_ms": 80, "concurrency": 4},
        "quantization": {
            "schemes": ["bf16", "int8"],
            "calibration": {"dataset": "models/data/calibration.txt", "samples": 24},
            "evaluation": {"samples": 16, "sample_tokens": 64},
            "budget": {"kl_per_token": 5, "top1": 0.1, "perplexity_ratio": 5},
        },
        "serving": {"max_num_queued_reqs": 64},
        "endpoint": {"instance_types": ["ml.g5.xlarge"]},
    }


def write_tree(root: Path) -> Path:
    command = (str(PYTHON), "-m", "tests.text_generation.tiny_llama", str(root / "models/tiny"))
    subprocess.run(command, cwd=ROOT, check=True)
    for folder in ("models/data", "environments"):
        (root / folder).mkdir(parents=True)
    (root / "models/data/calibration.txt").write_text(TEXTS.read_text())
    (root / "models/chat.yaml").write_text(yaml.safe_dump(spec_of(root / "models/tiny")))
    (root / "environments/local.yaml").write_text(yaml.safe_dump(ENVIRONMENT))
    return root


@pytest.fixture(scope="module")
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
        in_local_cloud=True,
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


def build(session, checkpoints):
    return engines.build_all(session, (), checkpoints=checkpoints, allow_dirty=True)


def by_training_job(request: CheckpointRequest) -> CheckpointRequest:
    """Return a request that a larger model would have, on a machine without a GPU."""

    class OnTheGpu(CheckpointRequest):
        def document(self):
            own = super().document()
            return {**own, "route": "quantizer-job", "instanceType": "ml.c5.xlarge"}

    return OnTheGpu(**vars(request))


def test_checkpoints_are_built_signed_and_locked_by_both_routes(session):
    requests = {request.scheme: request for request in missing_checkpoints(session)}
    assert {scheme: request.route for scheme, request in requests.items()} == {
        "bf16": "quantizer",
        "int8": "quantizer",
    }
    entries = build(session, [requests["int8"], by_training_job(requests["bf16"])])
    shown = session.report.console.file.getvalue()
    assert len(entries) == 2, shown
    int8 = next(entry for entry in entries if entry.scheme == "int8")
    assert int8.accepted and int8.gate.tokens > 0 and int8.gate.kl_per_token.value > 0
    assert next(entry for entry in entries if entry.scheme == "bf16").gate is None
    s3, bucket = session.clients("s3"), names.artifact_bucket(session.environment)
    der = session.clients("kms").get_public_key(
        KeyId=arns.signing_key_alias(session.environment)
    )["PublicKey"]
    for entry in entries:
        listed = s3.list_objects_v2(Bucket=bucket, Prefix=entry.prefix)["Contents"]
        assert {item["Key"].removeprefix(entry.prefix): item["Size"] for item in listed} == {
            file.path: file.size_bytes for file in entry.files
        }
        signature.verify_statement(
            entry.signature, record_sha256(entry), [signature.PublicKey(der)], subject=RECORD_NAME
        )
        statement = json.loads(entry.signature.statement)
        assert statement["predicate"]["buildDefinition"]["externalParameters"] == {
            "model": "chat",
            "checkpointKey": entry.checkpoint_key,
            "scheme": entry.scheme,
        }
    assert missing_checkpoints(session) == () and build(session, ()) == ()
    (deployment,) = session.generators()
    assert deployment.problem is None and deployment.entry in entries


def test_key_of_other_files_fails_in_a_sentence_and_leaves_the_lock(session):
    path, lock = session.paths.tree / "models/chat.yaml", session.paths.tree / "models/chat.lock.yaml"
    text, before = path.read_text(), lock.read_bytes()
    path.write_text(text.replace("samples: 24", "samples: 20"))
    (request,) = missing_checkpoints(session)
    path.write_text(text)
    with pytest.raises(engines.EnginesNotBuiltError, match="is no checkpoint key of chat"):
        build(session, [request])
    assert lock.read_bytes() == before
