"""The Python serving image, as far as it can be judged without Docker: what it copies is all that the server imports."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
DOCKERFILE = REPOSITORY / "container" / "Dockerfile.server"


def copied() -> list[tuple[str, str]]:
    """(source, target) of every COPY of our packages."""
    lines = [line.split()[1:] for line in DOCKERFILE.read_text().splitlines() if line.startswith("COPY ")]
    return [(source, target) for *sources, target in lines for source in sources if not source.startswith("requirements/")]


def test_image_holds_all_that_the_server_imports(tmp_path):
    for source, target in copied():
        place = tmp_path / target
        if (REPOSITORY / source).is_dir():
            shutil.copytree(REPOSITORY / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / source, place)
    command = (sys.executable, "-W", "error", "-B", "-m", "container.server", "nonsense")
    ended = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Unknown arguments ['nonsense']; use `serve` or none")


def test_image_runs_as_an_unprivileged_user_with_hashed_requirements():
    text = DOCKERFILE.read_text()
    assert "\nUSER 10001:10001\n" in text
    assert '"--require-hashes"' in text
