"""The stand-in for `serve` of the Triton image.

Variables in, tritonserver's command and environment out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from local_cloud.containers import triton_serve

pytestmark = pytest.mark.unit
DOCKERFILE = Path(__file__).parents[4] / "container" / "triton" / "Dockerfile"
MULTI = {"SAGEMAKER_MULTI_MODEL": "true"}
PING_MODE = triton_serve.PING_MODE


def command(**variables: str) -> tuple[str, ...]:
    return triton_serve.triton_command({**MULTI, **variables}, Path("/triton"), Path("/backends"))


def test_image_variables_are_those_of_the_image():
    actual = dict(re.findall(r"(SAGEMAKER_TRITON_\w+)=(\S+)", DOCKERFILE.read_text()))
    assert actual == triton_serve.IMAGE


@pytest.mark.parametrize(
    ("variables", "mode"),
    [
        (MULTI, None),
        (MULTI | {"SAGEMAKER_TRITON_OVERRIDE_PING_MODE": "live"}, None),
        (MULTI | triton_serve.IMAGE, "live"),
        (MULTI | triton_serve.IMAGE | {"SAGEMAKER_TRITON_OVERRIDE_PING_MODE": "ready"}, "ready"),
    ],
)
def test_ping_mode_reaches_the_server_only_where_it_was_set_before(variables, mode):
    assert triton_serve.served_variables(variables).get(PING_MODE) == mode


def test_empty_variable_is_not_set():
    found = triton_serve.set_variables(
        {"SAGEMAKER_TRITON_THREAD_COUNT": "", "SAGEMAKER_BIND_TO_PORT": "8081", "HOME": ""}
    )
    assert found == {"SAGEMAKER_BIND_TO_PORT": "8081", "HOME": ""}


def test_defaults_are_those_of_serve():
    wanted = {
        "--log-verbose=true",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--model-repository=/tmp/sagemaker",
        "--backend-config=python,shm-default-byte-size=16777216",
        "--backend-config=python,shm-growth-byte-size=1048576",
    }
    assert wanted <= set(command()) and not any("thread-count" in flag for flag in command())
    assert "--sagemaker-thread-count=3" in command(SAGEMAKER_TRITON_THREAD_COUNT="3")


def test_only_the_word_true_makes_a_multi_model_server():
    assert triton_serve.is_multi_model(MULTI)
    assert not triton_serve.is_multi_model({"SAGEMAKER_MULTI_MODEL": "TRUE"})


def test_refuses_an_inference_type_that_triton_does_not_have():
    with pytest.raises(
        triton_serve.ServeError, match=r"is chat; allowed: infer, generate, generate_stream"
    ):
        triton_serve.served_variables(MULTI | {triton_serve.INFERENCE_TYPE: "chat"})
