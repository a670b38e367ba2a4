"""Stands for `serve` in our Triton image: variables become a `tritonserver` command.

It runs as a script in the Triton environment and becomes the server before Triton. Source:
triton-inference-server/server, docker/sagemaker/serve, whose faults it has too. What onboarding
never leaves to its defaults is left out, and GPU memory limits of loads, as they ask nvidia-smi.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

DEFAULT_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
PING_MODE = "SAGEMAKER_TRITON_PING_MODE"
IMAGE = {"SAGEMAKER_TRITON_LOG_VERBOSE": "false", PING_MODE: "ready"}
"""What the image's own environment holds: `serve` exports a ping mode only where one is set."""
TRITON_IMAGE = Path(__file__).parents[2] / "container" / "triton_image"
SERVER = TRITON_IMAGE.with_name("server") / "__main__.py"
"""What our image adds to NVIDIA's."""
SIZES = ("shm-default-byte-size=16777216", "shm-growth-byte-size=1048576")
"""Shared memory of each Python backend, as `serve` sets it unless variables say otherwise."""


class ServeError(Exception):
    """The environment or the archive does not allow Triton to start."""


def main() -> None:
    """Becomes tritonserver, or says in one sentence why not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--triton", type=Path, required=True)
    parser.add_argument("--backends", type=Path, required=True)
    arguments = parser.parse_args()
    # Where the nvidia-pytriton wheel keeps Triton.
    wheel = "lib/python3.*/site-packages/pytriton/tritonserver"
    distribution = next(arguments.triton.glob(wheel))
    gather_backends(distribution, arguments.backends)
    try:
        variables = served_variables({**IMAGE, **os.environ})
        library = preloaded_verification(variables, arguments.backends)
    except ServeError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    # The image has one Python; here its packages lie in the Python server's environment.
    command = (
        *checking_server(arguments.triton.parent / "server" / "bin" / "python"),
        *library,
        *triton_command(variables, distribution, arguments.backends),
    )
    print(shlex.join(command), flush=True)
    os.execve(command[0], command, dict(variables))


def gather_backends(distribution: Path, backends: Path) -> None:
    """Links Triton's backends into one folder, with the stub that the wheel keeps elsewhere."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = distribution / "python_backend_stubs" / python / "triton_python_backend_stub"
    for backend in (distribution / "backends").iterdir():
        (backends / backend.name).mkdir(parents=True, exist_ok=True)
        for file in backend.iterdir():
            _link(backends / backend.name / file.name, file)
    _link(backends / "python" / stub.name, stub)


def _link(place: Path, target: Path) -> None:
    if not place.exists():
        # Not by process id: every container has a first process of its own, and another may start
        # at this moment.
        draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        draft.symlink_to(target)
        draft.replace(place)


def served_variables(variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of Triton's SageMaker front end. Raises ServeError without the model."""
    multi_model = is_multi_model(variables)
    if not multi_model:
        require_model(variables.get(DEFAULT_MODEL), Path(variables["SM_MODEL_DIR"]))
    return {**variables, PING_MODE: "live" if multi_model else "ready"}


def checking_server(python: Path | str) -> tuple[str, ...]:
    """Return the command of the image's server before Triton, which Triton's own command ends."""
    return (f"{python}", "-I", f"{SERVER}", "triton")


def preloaded_verification(variables: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """Return the command that preloads the image's check of signatures, compiled where needed."""
    if not variables.get("ROUNDHOUSE_SIGNERS"):
        return ()
    source, script = (TRITON_IMAGE / name for name in ("verify_repository.c", "verify_archive.py"))
    places = (f'-DPYTHON="{sys.executable}"', f'-DSCRIPT="{script}"')
    content = hashlib.sha256(source.read_bytes() + "".join(places).encode()).hexdigest()
    library = folder / f"verify_repository.{content}.so"
    draft = library.with_suffix(f".{uuid.uuid4().hex}")
    if not library.exists():
        try:
            subprocess.run(("gcc", "-shared", "-fPIC", *places, "-o", draft, source), check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ServeError(
                f"gcc could not compile {source}, which checks the signatures that this endpoint "
                f"asks for ({error}); install gcc"
            ) from error
        draft.replace(library)
    return ("/usr/bin/env", f"LD_PRELOAD={library}")


def is_multi_model(variables: Mapping[str, str]) -> bool:
    """Whether SageMaker runs the container in MultiModel mode."""
    return variables.get("SAGEMAKER_MULTI_MODEL") == "true"


def triton_command(
    variables: Mapping[str, str], distribution: Path, backends: Path
) -> tuple[str, ...]:
    """The tritonserver command line that `serve` would run for these variables."""
    address = variables.get("ROUNDHOUSE_BIND_ADDRESS", "0.0.0.0")
    return (
        str(distribution / "bin" / "tritonserver"),
        f"--model-repository={variables['SM_MODEL_DIR']}",
        f"--backend-directory={backends}",
        f"--cache-directory={distribution / 'caches'}",
        "--model-control-mode=explicit",
        "--model-namespacing=true",
        "--allow-http=false",
        "--allow-sagemaker=true",
        f"--sagemaker-port={variables['SAGEMAKER_BIND_TO_PORT']}",
        "--allow-grpc=false",
        *_metrics(variables, address),
        f"--log-verbose={variables.get('SAGEMAKER_TRITON_LOG_VERBOSE', 'true')}",
        *(f"--backend-config=python,{size}" for size in SIZES),
        *(() if is_multi_model(variables) else (f"--load-model={variables[DEFAULT_MODEL]}",)),
        *shlex.split(variables.get("SAGEMAKER_TRITON_ADDITIONAL_ARGS", "")),
    )


def _metrics(variables: Mapping[str, str], address: str) -> tuple[str, ...]:
    """Prometheus metrics are off unless their variable allows them."""
    if variables.get("SAGEMAKER_TRITON_ALLOW_METRICS", "false").lower() != "true":
        return ("--allow-metrics=false",)
    port = variables.get("SAGEMAKER_TRITON_METRICS_PORT", "8002")
    return ("--allow-metrics=true", f"--metrics-address={address}", f"--metrics-port={port}")


def require_model(name: str | None, repository: Path) -> None:
    """Raise ServeError where the archive does not hold the model that the endpoint serves."""
    if (repository / "config.pbtxt").exists():
        raise ServeError(
            f"config.pbtxt lies at the root of {repository}: a single-model archive keeps it in "
            "<model>/"
        )
    found = sorted(path.name for path in repository.iterdir() if path.is_dir())
    if name not in found:
        raise ServeError(
            f"{DEFAULT_MODEL}={name} is not in the archive, which holds {', '.join(found)}"
        )


if __name__ == "__main__":
    main()
