"""The Triton image without Docker: its variables, its user, and the step that changes `serve`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onboarding.serve_environment import LOG_VERBOSE, PING_MODE, serve_environment

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "container" / "triton" / "Dockerfile").read_text()
IMAGE = ROOT / "container" / "triton_image"
LAST_LINE = (
    "tritonserver --allow-sagemaker=true --allow-http=false "
    "--model-control-mode=explicit $SAGEMAKER_ARGS\n"
)
"""Of NVIDIA's docker/sagemaker/serve."""
LIBRARY = "/opt/roundhouse/libverify_repository.so"
PRELOADED = f"{LIBRARY}${{LD_PRELOAD:+:$LD_PRELOAD}}"
FRONT = "/opt/roundhouse/container/server/__main__.py triton"


def change_serve(script: str, folder: Path) -> tuple[int, str]:
    """Run the image's own step on a script; return the exit status and the changed script."""
    path = folder / "serve"
    path.write_text(script)
    (step,) = re.findall(r"^RUN (sed .*)$", DOCKERFILE, re.MULTILINE)
    process = subprocess.run(("sh", "-c", step.replace("/usr/bin/serve", str(path))), check=False)
    return process.returncode, path.read_text()


def test_serve_becomes_the_server_before_triton_so_that_sigterm_reaches_it(tmp_path):
    head = "#!/bin/bash\necho hello\n"
    status, script = change_serve(head + LAST_LINE, tmp_path)
    assert (status, script) == (
        0,
        f"{head}exec python3 -I {FRONT} env LD_PRELOAD={PRELOADED} {LAST_LINE}",
    )


@pytest.mark.parametrize(
    ("before", "preloaded"), [({}, LIBRARY), ({"LD_PRELOAD": "x.so"}, f"{LIBRARY}:x.so")]
)
def test_serve_preloads_the_check_of_signatures_before_what_was_preloaded(
    before, preloaded, tmp_path
):
    """`tritonserver` is played by a program that says what it was started with.

    So is the server before it, by one that runs its arguments.
    """
    change_serve("#!/bin/bash\n" + LAST_LINE, tmp_path)
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    python.chmod(0o755)
    server = tmp_path / "tritonserver"
    server.write_text('#!/bin/sh\necho "$LD_PRELOAD"\n')
    server.chmod(0o755)
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


def test_image_holds_what_the_check_of_signatures_runs():
    """Every file of ours that the check imports, where the compiled path says."""
    copied = re.findall(
        r"^COPY ((?:onboarding|container)/\S.*) (/opt/roundhouse/\S+)$", DOCKERFILE, re.M
    )
    files = {f"{folder}{Path(name).name}" for names, folder in copied for name in names.split()}
    check = "/opt/roundhouse/container/triton_image/verify_archive.py"
    assert check in files
    assert f'#define SCRIPT "{check}"' in (IMAGE / "verify_repository.c").read_text()
    program = (
        f"import runpy, sys; runpy.run_path({str(IMAGE / 'verify_archive.py')!r}); "
        "print(*(getattr(module, '__file__', None) for module in sys.modules.values()))"
    )
    command = (sys.executable, "-I", "-S", "-c", program)
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    ours = {path.removeprefix(str(ROOT)) for path in loaded if path.startswith(str(ROOT))}
    assert {f"/opt/roundhouse{path}" for path in ours} | {check} <= files


def test_image_holds_all_that_the_server_before_triton_imports(tmp_path):
    copied = re.findall(
        r"^COPY ((?:onboarding|container)/\S.*) /opt/roundhouse/(\S+)$", DOCKERFILE, re.M
    )
    for names, folder in copied:
        for source in (ROOT / name for name in names.split()):
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, tmp_path / folder, ignore=ignored)
            else:
                (tmp_path / folder).mkdir(parents=True, exist_ok=True)
                shutil.copy(source, tmp_path / folder)
    command = (
        sys.executable,
        "-W",
        "error",
        "-I",
        "-B",
        str(tmp_path / "container/server/__main__.py"),
        "triton",
    )
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 2 and process.stderr.startswith("No command")
