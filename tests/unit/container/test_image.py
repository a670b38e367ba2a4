"""The Python serving images without Docker: they copy all that the server imports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
DOCKERFILES = [
    REPOSITORY / "container" / name
    for name in (
        *("Dockerfile.server", "Dockerfile.server_gpu"),
        *("Dockerfile.server_baseline", "Dockerfile.server_gpu_baseline"),
    )
]
each_image = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)


def copied(dockerfile: Path) -> list[tuple[str, str]]:
    """(source, target) of every COPY of our packages."""
    lines = dockerfile.read_text().splitlines()
    return [
        (source, target)
        for _, *sources, target in (line.split() for line in lines if line.startswith("COPY "))
        for source in sources
        if not source.startswith("requirements/")
    ]


@each_image
def test_image_holds_all_that_the_server_imports(dockerfile, tmp_path):
    for source, target in copied(dockerfile):
        path = tmp_path / target
        if (REPOSITORY / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / source, path, ignore=ignored)
        else:
            path.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / source, path)
    command = (sys.executable, "-W", "error", "-B", "-m", "container.server", "nonsense")
    process = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("Unknown arguments ['nonsense']; use `serve` or none")


@each_image
def test_image_runs_as_an_unprivileged_user_with_hashed_requirements(dockerfile):
    text = dockerfile.read_text()
    assert "\nUSER 10001:10001\n" in text or "\nUSER triton-server\n" in text
    assert '"--require-hashes"' in text
    assert text.rstrip().endswith('"-m", "container.server"]\nCMD ["serve"]')


def test_gpu_image_keeps_nvidias_entry_point_and_proves_its_imports_behind_it():
    """It sets the libraries' paths and CUDA's forward compatibility."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILES[1].read_text())
    (entry,) = map(json.loads, re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE))
    proofs = list(map(json.loads, re.findall(r"^RUN (\[.*import .*)$", text, re.MULTILINE)))
    assert entry == ["/opt/nvidia/nvidia_entrypoint.sh", "python3", "-m", "container.server"]
    assert [proof[:2] for proof in proofs] == [entry[:2]]
    modules = set(re.findall(r"[\w.]+", proofs[0][-1]))
    assert {"tensorrt_bindings", "container.server.__main__"} <= modules
