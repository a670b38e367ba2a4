"""The servers that are measured: ours and real Triton."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.servers.fixtures import MODEL
from benchmarks.servers.running_server import Candidate, free_port
from onboarding.serve_environment import serve_environment

REPOSITORY = Path(__file__).resolve().parents[2]
PATH = "/usr/bin:/bin"


def ours(archive: Path, name: str = "ours") -> Candidate:
    """Return the Python server on an archive, as its image starts it.

    Without an environment of its own it runs in this Python.
    """
    port, venv = free_port(), REPOSITORY / ".venvs" / "server" / "bin" / "python"
    environment = {**server_environment(), "SM_MODEL_DIR": str(archive), **_address(port)}
    python = str(venv) if venv.is_file() else sys.executable
    argv = (python, "-m", "container.server", "serve")
    return Candidate(name=name, argv=argv, port=port, folder=REPOSITORY, environment=environment)


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


def triton(archive: Path, folder: Path, name: str = "triton", *, model: str = MODEL) -> Candidate:
    """Return real Triton behind the server that checks requests, as in its image."""
    port, venv = free_port(), REPOSITORY / ".venvs" / "triton"
    serve = REPOSITORY / "local_cloud" / "containers" / "triton_serve.py"
    options = ("--triton", str(venv), "--backends", str(folder / "backends"))
    environment = {
        "PATH": f"{venv}/bin:{PATH}",
        "HOME": str(folder),
        "SM_MODEL_DIR": str(archive),
        **_address(port),
        **serve_environment(model),
    }
    argv = (str(venv / "bin" / "python"), "-I", "-S", str(serve), *options)
    return Candidate(name=name, argv=argv, port=port, folder=folder, environment=environment)


def _address(port: int) -> dict[str, str]:
    return {"SAGEMAKER_BIND_TO_PORT": str(port), "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1"}
