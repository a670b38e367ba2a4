"""The images without Docker: they copy all that their servers import, and run without root."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onboarding.serve_environment import LOG_VERBOSE, PING_MODE, serve_environment

ROOT = Path(__file__).resolve().parents[3]
CONTAINER = ROOT / "container"
PYTHON_SERVERS = ("server", "server_gpu", "server_baseline", "server_gpu_baseline")
LAST_LINE = (
    "tritonserver --allow-sagemaker=true --allow-http=false "
    "--model-control-mode=explicit $SAGEMAKER_ARGS\n"
)
"""Of NVIDIA's docker/sagemaker/serve."""
LIBRARY = "/opt/roundhouse/libverify_repository.so"
FRONT = "/opt/roundhouse/container/server/__main__.py triton"
CHECK = "container/triton_image/verify_archive.py"


def dockerfile(name: str) -> str:
    """Return a Dockerfile, each instruction on one line."""
    path = CONTAINER / ("triton/Dockerfile" if name == "triton" else f"Dockerfile.{name}")
    return re.sub(r"\\\n\s*", "", path.read_text())


def copy_packages(name: str, target: Path) -> None:
    """Copy what an image copies of our packages."""
    for line in re.findall(r"^COPY ((?:onboarding|container)/.*)$", dockerfile(name), re.MULTILINE):
        *sources, folder = line.split()
        for source in (ROOT / word for word in sources):
            into = target / folder.removeprefix("/opt/roundhouse/")
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, into, ignore=ignored, dirs_exist_ok=True)
            elif source.suffix == ".py":
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, into)


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-W", "error", "-B", *arguments)
    return subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        *((name, ("-m", "container.server", "none"), "Unknown") for name in PYTHON_SERVERS),
        *(
            (name, ("-I", "container/server/__main__.py", name), "No command")
            for name in ("triton", "vllm")
        ),
    ],
    ids=[*PYTHON_SERVERS, "triton", "vllm"],
)
def test_image_holds_all_that_its_server_imports(name, arguments, words, tmp_path):
    copy_packages(name, tmp_path)
    process = python(tmp_path, *arguments)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith(words)


def test_image_of_triton_holds_what_the_check_of_signatures_runs(tmp_path):
    copy_packages("triton", tmp_path)
    assert python(tmp_path, "-I", "-c", f"import runpy; runpy.run_path({CHECK!r})").returncode == 0
    source = (CONTAINER / "triton_image" / "verify_repository.c").read_text()
    assert f'#define SCRIPT "/opt/roundhouse/{CHECK}"' in source


@pytest.mark.parametrize("name", [*PYTHON_SERVERS, "triton"])
def test_image_runs_as_an_unprivileged_user_with_hashed_requirements(name):
    lines = dockerfile(name).splitlines()
    (user,) = [line for line in lines if line.startswith("USER ")]
    assert user in ("USER 10001:10001", "USER triton-server")
    last_run = max(index for index, line in enumerate(lines) if line.startswith("RUN "))
    assert lines.index(user) > last_run
    assert any('"--require-hashes"' in line for line in lines)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("server", "python -m container.server"),
        ("server_gpu", "/opt/nvidia/nvidia_entrypoint.sh python3 -m container.server"),
        (
            "vllm",
            "python3 -I /opt/roundhouse/container/server/__main__.py vllm "
            "/usr/local/bin/sagemaker_entrypoint.sh",
        ),
    ],
)
def test_entry_point_is_a_server_of_ours_behind_the_vendors_own(name, entry):
    (line,) = re.findall(r"^ENTRYPOINT (.*)$", dockerfile(name), re.MULTILINE)
    assert json.loads(line) == entry.split()


def test_image_of_triton_sets_what_endpoints_are_deployed_with():
    deployed, text = serve_environment(None), dockerfile("triton")
    variables = dict(re.findall(r"(SAGEMAKER_TRITON_\w+)=(\S+)", text))
    assert variables == {name: deployed[name] for name in (LOG_VERBOSE, PING_MODE)}
    for capability in ("accept-bind-to-port", "multi-models"):
        assert f"com.amazonaws.sagemaker.capabilities.{capability}=true" in text


def change_serve(script: str, folder: Path) -> int:
    """Run the image's own step on a script of a name `serve`; return the exit status."""
    path = folder / "serve"
    path.write_text(script)
    (step,) = re.findall(r"^RUN (sed .*)$", dockerfile("triton"), re.MULTILINE)
    return subprocess.run(("sh", "-c", step.replace("/usr/bin/serve", str(path)))).returncode


@pytest.mark.parametrize(
    ("before", "preloaded"), [({}, LIBRARY), ({"LD_PRELOAD": "x.so"}, f"{LIBRARY}:x.so")]
)
def test_serve_becomes_our_server_and_preloads_the_check_of_signatures(before, preloaded, tmp_path):
    """A program that says what it was started with stands for `tritonserver`.

    One that runs its arguments stands for the server before it.
    """
    assert change_serve("#!/bin/bash\n" + LAST_LINE, tmp_path) == 0
    assert f"exec python3 -I {FRONT} env LD_PRELOAD=" in (tmp_path / "serve").read_text()
    programs = {"python3": 'shift 3\nexec "$@"\n', "tritonserver": 'echo "$LD_PRELOAD"\n'}
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}")
        (tmp_path / name).chmod(0o755)
    process = subprocess.run(
        ("bash", str(tmp_path / "serve")),
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **before},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == preloaded


@pytest.mark.parametrize(
    "script", ["#!/bin/bash\n", "#!/bin/bash\n  tritonserver --allow-sagemaker=true &\n"]
)
def test_refuses_a_base_image_whose_serve_ends_otherwise(script, tmp_path):
    assert change_serve(script, tmp_path) != 0
