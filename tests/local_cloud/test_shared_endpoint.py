"""A multi-model endpoint on a CPU, walked from its YAML files.

The Python server loads what is asked for.
"""

from __future__ import annotations

import pytest

from onboarding.lock import read_lock
from onboarding.names import target_model
from roundhouse import invocation
from roundhouse.errors import NotReadyError
from tests.local_cloud.tiny_session import SHARED, deploy_all, session_at

pytestmark = pytest.mark.local_cloud


@pytest.fixture
def tiny(tmp_path):
    with session_at(tmp_path) as tiny:
        (tmp_path / "endpoints" / "shared.yaml").write_text(SHARED)
        model = tmp_path / "models" / "tiny.yaml"
        lines = [
            line
            for line in model.read_text().splitlines()
            if not line.startswith(("serving:", "endpoint:"))
        ]
        model.write_text("\n".join([*lines, "endpoint: shared"]) + "\n")
        yield tiny


def test_python_server_answers_for_a_model_of_a_shared_endpoint_and_refuses_another(tiny):
    session = tiny.start()
    done = deploy_all(session)
    assert len(done.built) == 1
    (key,) = read_lock(tiny.lock.parent, "tiny").engines
    runtime = session.clients("sagemaker-runtime")
    for _ in range(2):
        (vector,) = invocation.invoke_texts(
            runtime,
            invocation.Address(endpoint="local-shared", target_model=target_model(key)),
            ["a red train"],
        )
        assert sum(number * number for number in vector) == pytest.approx(1, abs=1e-5)
    with pytest.raises(NotReadyError, match="Failed to download model data"):
        invocation.invoke_texts(
            runtime,
            invocation.Address(endpoint="local-shared", target_model=target_model("0" * 16)),
            ["a red train"],
        )
    assert deploy_all(session).built == ()
