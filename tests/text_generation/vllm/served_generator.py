"""A text generator of a tree, served by vLLM in the local cloud of a repository of its own."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from local_cloud import lifecycle
from onboarding import names
from onboarding.checkpoint import checkpoint_sha256
from onboarding.generation_resolve import checkpoint_keys, generation_deployments
from onboarding.lock import read_lock, write_lock_entry
from onboarding.text_generation.checkpoint_lock import GenerationLock
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import Tree, read_tree
from roundhouse.deploy.stacks import endpoint_stack_name
from stacks.endpoint_stack import endpoint_template
from stacks.images import generation_image
from tests.local_cloud.account import ACCOUNT, ROOT, Account
from tests.local_cloud.repository_copy import copy_repository, roundhouse
from tests.unit.onboarding.text_generation.entries import entry_of

IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local/vllm-server:1"
DEADLINE_SECONDS = 900
LOCKS = "build/local/locks"
ENVIRONMENT = {
    "name": "local",
    "account": ACCOUNT,
    "region": "us-east-1",
    "platform": "triton-24.10-cpu",
    "locks": LOCKS,
}
MOST = 3
"""Answers under way at once; what is above is refused, so that the knee is this number."""
SPEC = {
    "name": "chat",
    "task": "text-generation",
    "context": {"max_model_len": 512, "prompt_p95": 48, "output_p95": 16},
    "slo": {"ttft_p95_ms": 60_000, "itl_p95_ms": 60_000, "concurrency": 2},
    "quantization": {"schemes": ["bf16"]},
    "serving": {"platform": "vllm-0.30.0", "max_num_queued_reqs": MOST},
    "endpoint": {
        "instance_types": ["ml.g5.xlarge"],
        "copies": {"min": 1, "max": 1},
        "start_up_seconds": 900,
    },
}


@dataclass(frozen=True, kw_only=True)
class ServedGenerator:
    """The repository's copy, whose tree has the model file `chat`, and its local cloud."""

    place: Path
    account: Account

    @property
    def tree(self) -> Tree:
        """The tree as its files are now."""
        tree = read_tree(self.place)
        assert not tree.faults, list(map(str, tree.faults))
        return tree

    @property
    def deployment(self) -> GenerationDeployment:
        """The text generator by its files and its lock."""
        (found,) = generation_deployments(self.tree, "local")
        return found

    @property
    def entry(self):
        """Its checkpoint in the lock."""
        (entry,) = read_lock(self.place / LOCKS, "chat", GenerationLock).checkpoints.values()
        return entry

    def run(self, *words: str, code: int = 0) -> str:
        """Run `roundhouse` in a process; return its standard output."""
        ended = subprocess.run(
            roundhouse(self.place, *words),
            cwd=self.place,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout

    def read(self, *words: str, code: int = 0) -> Any:
        """Run `roundhouse` and return the JSON that it prints."""
        return json.loads(self.run(*words, "--format", "json", code=code))


def start_generator(place: Path) -> ServedGenerator:
    """Deploy a random Llama of 6 MB as the text generator `chat`."""
    copy_repository(place)
    folder = place / "models/data/tiny"
    python = ROOT / ".venvs/vllm/bin/python"
    command = (str(python), "-m", "tests.text_generation.tiny_llama", str(folder))
    subprocess.run(command, cwd=ROOT, check=True)
    source = {"checkpoint": "models/data/tiny", "sha256": checkpoint_sha256(folder)}
    (place / "environments").mkdir()
    (place / "environments/local.yaml").write_text(yaml.safe_dump(ENVIRONMENT))
    (place / "models/chat.yaml").write_text(yaml.safe_dump({**SPEC, "source": source}))
    state = place / "build/local"
    account = Account(lifecycle.start(place, state), state)
    account.deadline_seconds = DEADLINE_SECONDS
    served = ServedGenerator(place=place, account=account)
    _deploy(served, {file.name: file.read_bytes() for file in folder.iterdir()})
    return served


def _deploy(served: ServedGenerator, files: dict[str, bytes]) -> None:
    """Lock and publish the source's own files, and deploy the stack that serves them."""
    spec = served.tree.views["local"].generators["chat"].spec
    (key,) = checkpoint_keys(spec, served.place)
    entry = entry_of(key, files, scheme="bf16")
    write_lock_entry(served.place / LOCKS, "chat", entry)
    deployment, s3 = served.deployment, served.account.client("s3")
    bucket = names.artifact_bucket(deployment.environment)
    s3.create_bucket(Bucket=bucket)
    for name, data in files.items():
        s3.put_object(Bucket=bucket, Key=f"{entry.prefix}{name}", Body=data)
    images = {generation_image(deployment.platform): IMAGE}
    template = endpoint_template(deployment, images)
    assert template["Resources"], deployment.problem
    s3.put_object(Bucket=bucket, Key="template.json", Body=json.dumps(template))
    stack, formation = endpoint_stack_name(deployment), served.account.client("cloudformation")
    url = f"{served.account.address.endpoint_url}/{bucket}/template.json"
    formation.create_stack(StackName=stack, TemplateURL=url, Capabilities=["CAPABILITY_NAMED_IAM"])
    status = served.account.settled(stack)
    assert status == "CREATE_COMPLETE", served.account.reason(stack)
