"""The Python serving images, as far as they can be judged without Docker.

What they copy is all that the server imports.
"""

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
    REPOSITORY / "container" / name for name in ("Dockerfile.server", "Dockerfile.server_gpu")
]
each_image = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)


def copied(dockerfile: Path) -> list[tuple[str, str]]:
    """(source, target) of every COPY of our packages."""
    lines = [
        line.split()[1:] for line in dockerfile.read_text().splitlines() if line.startswith("COPY ")
    ]
    return [
        (source, target)
        for *sources, target in lines
        for source in sources
        if not source.startswith("requirements/")
    ]


@each_image
def test_image_holds_all_that_the_server_imports(dockerfile, tmp_path):
    for source, target in copied(dockerfile):
        place = tmp_path / target
        if (REPOSITORY / source).is_dir():
            shutil.copytree(
                REPOSITORY / source, place, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / source, place)
    command = (sys.executable, "-W", "error", "-B", "-m", "container.server", "nonsense")
    ended = subprocess.run(
        command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Unknown arguments ['nonsense']; use `serve` or none")


@each_image
def test_image_runs_as_an_unprivileged_user_with_hashed_requirements(dockerfile):
    text = dockerfile.read_text()
    assert "\nUSER 10001:10001\n" in text or "\nUSER triton-server\n" in text
    assert '"--require-hashes"' in text
    assert text.rstrip().endswith('"-m", "container.server"]\nCMD ["serve"]')


def test_gpu_image_keeps_nvidias_entry_point_and_proves_its_imports_behind_it():
    """It sets the libraries' paths and CUDA's forward compatibility.

    The server is what it becomes.
    """
    text = re.sub(r"\\\n\s*", "", DOCKERFILES[1].read_text())
    (entry,) = (
        json.loads(line.removeprefix("ENTRYPOINT "))
        for line in text.splitlines()
        if line.startswith("ENTRYPOINT ")
    )
    proofs = [
        json.loads(line.removeprefix("RUN "))
        for line in text.splitlines()
        if line.startswith("RUN [") and "import " in line
    ]
    assert entry == ["/opt/nvidia/nvidia_entrypoint.sh", "python3", "-m", "container.server"]
    assert [proof[:2] for proof in proofs] == [entry[:2]]
    assert {"tensorrt_bindings", "container.server.__main__"} <= set(
        re.findall(r"[\w.]+", proofs[0][-1])
    )
