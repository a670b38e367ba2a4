"""The servers that are measured: ours, the naive one, real Triton, raw uvicorn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.servers.fixtures import MAX_TOKENS, Fixtures, write_checkpoint
from benchmarks.servers.running_server import Candidate, free_port
from benchmarks.trees import MODEL
from onboarding.serve_environment import serve_environment
from roundhouse.paths import Paths

PROGRAMS = Path(__file__).parent / "programs"
PATH = "/usr/bin:/bin"
NAIVE_PROCESSES = 2
NO_VARIABLES: Mapping[str, str] = {}


def ours(
    fixtures: Fixtures, name: str = "ours", extra: Mapping[str, str] = NO_VARIABLES
) -> Candidate:
    """Return the Python server on the archive, as its image starts it, with more variables."""
    variables = {"SM_MODEL_DIR": str(fixtures.archive), **extra}
    return _python_server(fixtures.paths, ("-m", "container.server", "serve"), name, variables)


def echo(paths: Paths, name: str = "echo", extra: Mapping[str, str] = NO_VARIABLES) -> Candidate:
    """Return the Python server whose engine answers with a constant row."""
    return _python_server(paths, (str(PROGRAMS / "echo.py"),), name, extra)


def _python_server(
    paths: Paths, program: tuple[str, ...], name: str, variables: Mapping[str, str]
) -> Candidate:
    port = free_port()
    environment = {"PATH": PATH, **_address(port), "PYTHONPATH": str(paths.code), **variables}
    argv = (str(paths.venv_python("server")), *program)
    return Candidate(name=name, argv=argv, port=port, folder=paths.code, environment=environment)


def _address(port: int) -> dict[str, str]:
    return {"SAGEMAKER_BIND_TO_PORT": str(port), "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1"}


def gunicorn(python: str, port: int, workers: int, *more: str) -> tuple[str, ...]:
    """Return the command of gunicorn's sync workers, which `more` ends with the application."""
    workers_of = ("--workers", str(workers), "--worker-class", "sync", "--timeout", "120")
    listen = ("--log-level", "warning", "--bind", f"127.0.0.1:{port}")
    return (python, "-m", "gunicorn", *workers_of, *listen, *more)


def naive(fixtures: Fixtures, *, threads: int) -> Candidate:
    """Return Flask behind gunicorn; `threads` 0 leaves ONNX Runtime its default."""
    port, python = free_port(), str(fixtures.paths.venv_python("bench"))
    argv = gunicorn(python, port, NAIVE_PROCESSES, "--chdir", str(PROGRAMS), "naive:app")
    environment = {
        "NAIVE_ENGINE": str(fixtures.engine),
        "NAIVE_CHECKPOINT": str(write_checkpoint(fixtures)),
        "NAIVE_THREADS": str(threads),
        "NAIVE_MAX_TOKENS": str(MAX_TOKENS),
        "HF_HUB_OFFLINE": "1",
        "PATH": PATH,
    }
    folder = fixtures.folder
    return Candidate(name="naive", argv=argv, port=port, folder=folder, environment=environment)


def triton(
    fixtures: Fixtures, name: str = "triton", *, bare: bool = False, model: str = MODEL
) -> Candidate:
    """Return real Triton with the same archive, its engine in the python backend.

    It is behind the server that checks requests, as in its image, unless it is `bare`.
    """
    port, code, folder = free_port(), fixtures.paths.code, fixtures.folder
    venv = code / ".venvs" / "triton"
    serve = code / "local_cloud" / "containers" / "triton_serve.py"
    backends = str(folder / "backends")
    options = ("--triton", str(venv), "--backends", backends, *(("--bare",) if bare else ()))
    environment = {
        "PATH": f"{venv}/bin:{PATH}",
        "HOME": str(folder),
        "SM_MODEL_DIR": str(fixtures.archive),
        **_address(port),
        **serve_environment(model),
    }
    argv = (str(venv / "bin" / "python"), "-I", "-S", str(serve), *options)
    return Candidate(name=name, argv=argv, port=port, folder=folder, environment=environment)


def raw_uvicorn(paths: Paths) -> Candidate:
    """Return uvicorn with the least application that does the same work."""
    port, program = free_port(), str(PROGRAMS / "raw_uvicorn.py")
    argv = (str(paths.venv_python("bench")), program, str(port))
    environment, name = {"PATH": PATH}, "raw uvicorn"
    return Candidate(name=name, argv=argv, port=port, folder=paths.code, environment=environment)
