"""The Triton image without Docker: its variables, its user, and the step that changes `serve`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from onboarding.serve_environment import LOG_VERBOSE, PING_MODE, serve_environment

DOCKERFILE = (Path(__file__).parents[3] / "container" / "triton" / "Dockerfile").read_text()
LAST_LINE = (
    "tritonserver --allow-sagemaker=true --allow-http=false "
    "--model-control-mode=explicit $SAGEMAKER_ARGS\n"
)
"""Of NVIDIA's docker/sagemaker/serve."""


def change_serve(script: str, folder: Path) -> tuple[int, str]:
    """Run the image's own step on a script; return the exit status and the changed script."""
    path = folder / "serve"
    path.write_text(script)
    (step,) = re.findall(r"^RUN (sed .*)$", DOCKERFILE, re.MULTILINE)
    process = subprocess.run(("sh", "-c", step.replace("/usr/bin/serve", str(path))), check=False)
    return process.returncode, path.read_text()


def test_serve_becomes_the_server_so_that_sigterm_reaches_it(tmp_path):
    head = "#!/bin/bash\necho hello\n"
    assert change_serve(head + LAST_LINE, tmp_path) == (0, f"{head}exec {LAST_LINE}")


@pytest.mark.parametrize(
    "script", ["#!/bin/bash\n", "#!/bin/bash\n  tritonserver --allow-sagemaker=true &\n"]
)
def test_refuses_a_base_image_whose_serve_ends_otherwise(script, tmp_path):
    assert change_serve(script, tmp_path)[0] != 0


def test_image_sets_what_endpoints_are_deployed_with():
    deployed = serve_environment(None)
    variables = dict(re.findall(r"(SAGEMAKER_TRITON_\w+)=(\S+)", DOCKERFILE))
    assert variables == {name: deployed[name] for name in (LOG_VERBOSE, PING_MODE)}


def test_image_runs_as_an_unprivileged_user_with_hashed_requirements_and_sagemakers_labels():
    lines = DOCKERFILE.splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER triton-server"]
    last_run = max(index for index, line in enumerate(lines) if line.startswith("RUN "))
    assert lines.index("USER triton-server") > last_run
    assert '"--require-hashes", "--only-binary=:all:"' in DOCKERFILE
    for capability in ("accept-bind-to-port", "multi-models"):
        assert f"com.amazonaws.sagemaker.capabilities.{capability}=true" in DOCKERFILE
    assert not any(line.startswith(("ENTRYPOINT", "CMD")) for line in lines)
