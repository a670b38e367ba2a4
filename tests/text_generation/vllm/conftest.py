"""The local cloud with the real vLLM behind an inference component, and a tiny checkpoint in S3."""

import subprocess

import pytest

from local_cloud import lifecycle
from tests.local_cloud.account import BUCKET, ROOT, Account
from tests.local_cloud.hosted_component import Hosted

PYTHON = ROOT / ".venvs" / "vllm" / "bin" / "python"


@pytest.fixture(scope="session")
def cloud(tmp_path_factory):
    state = tmp_path_factory.mktemp("cloud")
    account = Account(lifecycle.start(ROOT, state), state)
    account.deadline_seconds = 900
    account.client("s3").create_bucket(Bucket=BUCKET)
    yield account
    account.close()
    lifecycle.stop(state)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A folder with a random Llama of 6 MB."""
    folder = tmp_path_factory.mktemp("checkpoint")
    command = (str(PYTHON), "-m", "tests.text_generation.tiny_llama", str(folder))
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture
def chat(cloud, checkpoint):
    """A chat endpoint by name; its stack is deleted afterwards."""
    made = []

    def deploy(name, **options):
        for file in checkpoint.iterdir():
            cloud.client("s3").put_object(
                Bucket=BUCKET, Key=f"checkpoints/{name}/{file.name}", Body=file.read_bytes()
            )
        made.append(Hosted(cloud, name))
        return made[-1].deploy(**options)

    yield deploy
    for hosted in made:
        cloud.destroy(hosted.name)
