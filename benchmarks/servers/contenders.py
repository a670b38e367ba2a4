"""The servers that are measured: ours, the naive one, real Triton, raw uvicorn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.servers.ground import MAX_TOKENS, Ground, checkpoint, free_port
from benchmarks.servers.running import Contender
from benchmarks.trees import MODEL
from onboarding.serve_environment import serve_environment
from roundhouse.paths import Paths

PROGRAMS = Path(__file__).parent / "programs"
NAIVE_PROCESSES = 2


def ours(ground: Ground, name: str = "ours", extra: Mapping[str, str] | None = None) -> Contender:
    """The Python server on the archive, as its image starts it; `extra` are more variables."""
    return _python_server(
        ground.at,
        ("-m", "container.server", "serve"),
        name,
        {"SM_MODEL_DIR": str(ground.archive), **(extra or {})},
    )


def echo(at: Paths, name: str = "echo", extra: Mapping[str, str] | None = None) -> Contender:
    """The Python server whose engine answers a constant row."""
    return _python_server(at, (str(PROGRAMS / "echo.py"),), name, extra or {})


def _python_server(
    at: Paths, argv: tuple[str, ...], name: str, extra: Mapping[str, str]
) -> Contender:
    port = free_port()
    told = {
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        "PYTHONPATH": str(at.code),
    }
    command = (str(at.venv_python("server")), *argv)
    return Contender(
        name=name,
        argv=command,
        port=port,
        folder=at.code,
        environment={"PATH": "/usr/bin:/bin", **told, **extra},
    )


def naive(ground: Ground, *, threads: int) -> Contender:
    """Flask behind gunicorn, a process a core; `threads` 0 leaves ONNX Runtime its default."""
    port, python = free_port(), ground.at.venv_python("bench")
    listen = (
        "--workers",
        str(NAIVE_PROCESSES),
        "--worker-class",
        "sync",
        "--bind",
        f"127.0.0.1:{port}",
    )
    told = {
        "NAIVE_ENGINE": str(ground.engine),
        "NAIVE_CHECKPOINT": str(checkpoint(ground)),
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
    return Contender(name="naive", argv=argv, port=port, folder=ground.place, environment=told)


def triton(ground: Ground) -> Contender:
    """Real Triton with the same archive, its engine in the python backend."""
    port, venv = free_port(), ground.at.code / ".venvs" / "triton"
    serve = ground.at.code / "local_cloud" / "containers" / "triton_serve.py"
    argv = (
        str(venv / "bin" / "python"),
        "-I",
        "-S",
        str(serve),
        "--triton",
        str(venv),
        "--backends",
        str(ground.place / "backends"),
    )
    told = {
        "PATH": f"{venv}/bin:/usr/bin:/bin",
        "HOME": str(ground.place),
        "SM_MODEL_DIR": str(ground.archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        **serve_environment(MODEL),
    }
    return Contender(name="triton", argv=argv, port=port, folder=ground.place, environment=told)


def raw_uvicorn(at: Paths) -> Contender:
    """The least that uvicorn can do."""
    port = free_port()
    argv = (str(at.venv_python("bench")), str(PROGRAMS / "raw_uvicorn.py"), str(port))
    return Contender(
        name="raw uvicorn",
        argv=argv,
        port=port,
        folder=at.code,
        environment={"PATH": "/usr/bin:/bin"},
    )
