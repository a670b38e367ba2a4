"""A full queue, a long wait, no memory, and an engine that fails."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from local_cloud.containers.server_client import Response
from tests.contract.conftest import SECONDS, Served, load, serving
from tests.contract.pressure_exchanges import reply
from tests.contract.replies import KINDS
from tests.contract.requests import json_request
from tests.contract.test_exchanges import is_reply

SLOW = Path(__file__).with_name("slow_engine.py")
FAULTS = {"the engine says that memory is short": -507, "the engine fails": -500}
TRITONS = [kind for kind in KINDS if kind.startswith("triton-")]
CONFIGURATION = """
backend: "python"
max_batch_size: 1
input [{ name: "number" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "same" data_type: TYPE_FP32 dims: [1] }]
instance_group [{ kind: KIND_CPU }]
dynamic_batching {
  default_queue_policy { max_queue_size: 1 timeout_action: REJECT default_timeout_microseconds: %d }
}
"""


@dataclass(frozen=True, kw_only=True)
class Slow:
    """A server whose engine waits for a gate."""

    served: Served
    folder: Path

    def ask(self, number: float = 1.0) -> Response:
        """One request; negative numbers are the engine's faults."""
        tensor = {"name": "number", "shape": [1, 1], "datatype": "FP32", "data": [number]}
        return self.served.ask(json.dumps({"inputs": [tensor]}).encode())

    def wait_until_taken(self) -> None:
        """Until the engine has a request."""
        deadline = time.monotonic() + SECONDS
        while "\ntaken" not in self.served.container.spec.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def open(self) -> None:
        """Lets everything through."""
        (self.folder / "gate").touch()


def write_slow(root: Path, *, timeout_us: int = 0) -> Path:
    """The model's repository; gives the folder of its gate."""
    folder = root / "slow" / "1"
    folder.mkdir(parents=True)
    shutil.copy(SLOW, folder / "model.py")
    (root / "slow" / "config.pbtxt").write_text(CONFIGURATION % timeout_us)
    return folder


@contextmanager
def slow(kind: str, folder: Path, *, timeout_us: int = 0) -> Iterator[Slow]:
    """A slow server, stopped at the end."""
    root, run_folder = folder / "model", folder / "server"
    gate = write_slow(root, timeout_us=timeout_us)
    with serving(kind, root, run_folder, model="slow") as served:
        yield Slow(served=served, folder=gate)


@pytest.mark.parametrize("kind", TRITONS)
def test_full_queue_and_failing_engine_are_answered_as_listed(kind, tmp_path):
    with slow(kind, tmp_path) as server, ThreadPoolExecutor(6) as clients:
        for name, number in FAULTS.items():
            answer = server.ask(number)
            assert is_reply(answer, reply(name, kind)), (name, answer)
        first = clients.submit(server.ask)
        server.wait_until_taken()
        others = [clients.submit(server.ask) for _ in range(4)]
        turned_away = [next(done).result() for done in [as_completed(others)] for _ in range(3)]
        server.open()
        assert all(is_reply(answer, reply("the queue is full", kind)) for answer in turned_away), (
            turned_away
        )
        assert all("Exceeds maximum queue size" in answer.body.decode() for answer in turned_away)
        assert all("retry-after" not in answer.headers for answer in turned_away)
        assert first.result().status == 200
        assert sorted(other.result().status for other in others)[0] == 200


@pytest.mark.parametrize("kind", TRITONS)
def test_wait_that_is_too_long_is_answered_as_listed(kind, tmp_path):
    with slow(kind, tmp_path, timeout_us=20_000) as server, ThreadPoolExecutor(2) as clients:
        first = clients.submit(server.ask)
        server.wait_until_taken()
        late = clients.submit(server.ask).result()
        server.open()
        assert is_reply(late, reply("the wait in the queue is too long", kind)), late
        assert json.loads(late.body) == {"error": "Request timeout expired"}
        assert first.result().status == 200


def test_full_queue_of_the_python_server_has_a_time_to_come_back(archive, tmp_path):
    kind = "python-server"
    limits = {"ROUNDHOUSE_QUEUE_ROWS": "1000", "ROUNDHOUSE_MAX_REQUEST_ROWS": "1000"}
    body = json_request(["the cat sat on the mat"] * 1000)
    with serving(kind, archive, tmp_path, **limits) as served:
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda _: served.ask(body), range(16)))
        turned_away = [answer for answer in answers if answer.status != 200]
        assert turned_away and len(turned_away) < len(answers)
        assert all(is_reply(answer, reply("the queue is full", kind)) for answer in turned_away)
        assert all(int(answer.headers["retry-after"]) > 0 for answer in turned_away)
        assert served.client.request("GET", "/ping").status == 200


def test_load_without_memory_asks_sagemaker_to_unload_others(launched, tmp_path):
    kind = "triton-mme"
    served = launched(kind)
    (write_slow(tmp_path / "model") / "no-memory").touch()
    answer = load(served.client, tmp_path / "model", name="large", target="large/model.tar.gz")
    assert is_reply(answer, reply("load while memory is short", kind)), answer
    assert served.client.request("GET", "/ping").status == 200
    assert served.ask(json_request(["a dog"])).status == 200
