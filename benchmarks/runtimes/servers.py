"""The servers of the runtime benchmark: ours, on any archive, and real Triton."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.servers.candidates import triton
from benchmarks.servers.fixtures import Fixtures
from benchmarks.servers.running_server import Candidate, free_port
from roundhouse.paths import find_paths

REPOSITORY = Path(__file__).resolve().parents[2]


def server_candidates(name: str, folder: Path, device: str) -> list[Candidate]:
    """Return our server and, on a CPU, real Triton, both on the same archive."""
    archive = folder / "archives" / name
    ours = our_server("our server", archive, {})
    if device == "cuda":
        return [ours]
    paths = find_paths(REPOSITORY / "benchmarks")
    fixtures = Fixtures(paths=paths, folder=folder, archive=archive, texts=())
    return [ours, triton(fixtures, "Triton", model=name)]


def our_server(
    name: str,
    archive: Path,
    variables: Mapping[str, str],
    *,
    program: str = "container.server",
    cores: str | None = None,
) -> Candidate:
    """Return our Python server on an archive; `program` is the module that starts it."""
    port = free_port()
    environment = {
        **server_environment(),
        "SM_MODEL_DIR": str(archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        **variables,
    }
    python = sys.executable
    venv = REPOSITORY / ".venvs" / "server" / "bin" / "python"
    if program == "container.server" and venv.is_file():
        python = str(venv)
    argv = (python, "-m", program, "serve")
    return Candidate(
        name=name, argv=argv, port=port, folder=REPOSITORY, environment=environment, cores=cores
    )


def server_environment() -> dict[str, str]:
    """Return this process's environment with the folders of PyTorch's CUDA libraries."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("ROUNDHOUSE_")
    }
    libraries = [
        str(path) for entry in sys.path for path in sorted(Path(entry).glob("nvidia/*/lib"))
    ]
    paths = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": [str(REPOSITORY)]}
    joined = {
        name: ":".join([*folders, *filter(None, [inherited.get(name)])])
        for name, folders in paths.items()
    }
    return {**inherited, **joined}
