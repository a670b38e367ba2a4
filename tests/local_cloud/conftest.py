import json
import os

import pytest

from local_cloud import lifecycle
from local_cloud.settings import BENCHMARK_SECONDS
from tests.local_cloud.account import BUCKET, ROOT, Account
from tests.local_cloud.tiny_session import session_at

PYTHON = str(ROOT / ".venvs" / "cloud" / "bin" / "python")
# What a tiny engine measures is not what these tests are about; every shape still has its round.
os.environ.setdefault(BENCHMARK_SECONDS, "0.1")
SERVER = str(ROOT / "tests" / "local_cloud" / "answering_server.py")


def write_images(state):
    """Adds a test server and a build image to the local cloud's image table."""
    rows = {"test-server": {"command": [PYTHON, "-I", SERVER]}, "test-builder": {}}
    state.mkdir(parents=True, exist_ok=True)
    (state / "images.yaml").write_text(json.dumps(rows))


@pytest.fixture(scope="session")
def cloud(tmp_path_factory):
    state = tmp_path_factory.mktemp("cloud")
    write_images(state)
    account = Account(lifecycle.start(ROOT, state), state)
    account.client("s3").create_bucket(Bucket=BUCKET)
    yield account
    account.close()
    lifecycle.stop(state)


@pytest.fixture
def new_state(tmp_path):
    """A state folder whose local cloud, if a test starts one, is stopped afterwards."""
    state = tmp_path / "state"
    write_images(state)
    yield state
    lifecycle.stop(state)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny session of a module, with nothing deployed."""
    with session_at(tmp_path_factory.mktemp("session")) as tiny:
        yield tiny


@pytest.fixture
def session(tiny):
    """The session of a module's `tiny`, its local cloud started when it is not up."""
    return tiny.start()
