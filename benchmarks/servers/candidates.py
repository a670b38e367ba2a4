"""The servers that are measured: ours, the naive one, real Triton, raw uvicorn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.servers.fixtures import MAX_TOKENS, Fixtures, checkpoint, free_port
from benchmarks.servers.running_server import Candidate
from benchmarks.trees import MODEL
from onboarding.serve_environment import serve_environment
from roundhouse.paths import Paths

PROGRAMS = Path(__file__).parent / "programs"
NAIVE_PROCESSES = 2


def ours(
    fixtures: Fixtures, name: str = "ours", extra: Mapping[str, str] | None = None
) -> Candidate:
    """The Python server on the archive, as its image starts it; `extra` are more variables."""
    return _python_server(
        fixtures.at,
        ("-m", "container.server", "serve"),
        name,
        {"SM_MODEL_DIR": str(fixtures.archive), **(extra or {})},
    )


def echo(at: Paths, name: str = "echo", extra: Mapping[str, str] | None = None) -> Candidate:
    """The Python server whose engine answers a constant row."""
    return _python_server(at, (str(PROGRAMS / "echo.py"),), name, extra or {})


def _python_server(
    at: Paths, argv: tuple[str, ...], name: str, extra: Mapping[str, str]
) -> Candidate:
    port = free_port()
    text = {
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        "PYTHONPATH": str(at.code),
    }
    command = (str(at.venv_python("server")), *argv)
    return Candidate(
        name=name,
        argv=command,
        port=port,
        folder=at.code,
        environment={"PATH": "/usr/bin:/bin", **text, **extra},
    )


def naive(fixtures: Fixtures, *, threads: int) -> Candidate:
    """Flask behind gunicorn, a process a core; `threads` 0 leaves ONNX Runtime its default."""
    port, python = free_port(), fixtures.at.venv_python("bench")
    listen = (
        "--workers",
        str(NAIVE_PROCESSES),
        "--worker-class",
        "sync",
        "--bind",
        f"127.0.0.1:{port}",
    )
    text = {
        "NAIVE_ENGINE": str(fixtures.engine),
        "NAIVE_CHECKPOINT": str(checkpoint(fixtures)),
        "NAIVE_THREADS": str(threads),
        "NAIVE_MAX_TOKENS": str(MAX_TOKENS),
        "HF_HUB_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
    }
    argv = (
        str(python),
        "-m",
        "gunicorn",
        "--log-level",
        "warning",
        *listen,
        "--chdir",
        str(PROGRAMS),
        "naive:app",
    )
    return Candidate(name="naive", argv=argv, port=port, folder=fixtures.place, environment=text)


def triton(fixtures: Fixtures) -> Candidate:
    """Real Triton with the same archive, its engine in the python backend."""
    port, venv = free_port(), fixtures.at.code / ".venvs" / "triton"
    serve = fixtures.at.code / "local_cloud" / "containers" / "triton_serve.py"
    argv = (
        str(venv / "bin" / "python"),
        "-I",
        "-S",
        str(serve),
        "--triton",
        str(venv),
        "--backends",
        str(fixtures.place / "backends"),
    )
    text = {
        "PATH": f"{venv}/bin:/usr/bin:/bin",
        "HOME": str(fixtures.place),
        "SM_MODEL_DIR": str(fixtures.archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        **serve_environment(MODEL),
    }
    return Candidate(name="triton", argv=argv, port=port, folder=fixtures.place, environment=text)


def raw_uvicorn(at: Paths) -> Candidate:
    """The least that uvicorn can do."""
    port = free_port()
    argv = (str(at.venv_python("bench")), str(PROGRAMS / "raw_uvicorn.py"), str(port))
    return Candidate(
        name="raw uvicorn",
        argv=argv,
        port=port,
        folder=at.code,
        environment={"PATH": "/usr/bin:/bin"},
    )
