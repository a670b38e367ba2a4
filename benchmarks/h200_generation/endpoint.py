"""vLLM's server behind our server of text generators, as the container starts it."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.h200_generation.engines import cache_report, read_log, server
from benchmarks.h200_generation.shapes import CONFIGS
from benchmarks.servers.running_server import free_port

FRONT = "container.generation_front"
PORT = 8080
MODEL = "chat"
WITH_PORT = 'echo "$SM_VLLM_PORT" > "$1"; shift; exec "$@" --port "$SM_VLLM_PORT"'
"""The engine's command gets its port from our server, and leaves it in a file."""
QUEUE = 1024
"""Requests that may wait; a load sends all of them at once."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Engine arguments of one server, and the file of its output."""

    options: Mapping[str, Any]
    log: Path
    queue: int = QUEUE

    @property
    def has_front(self) -> bool:
        """True where our server is in this tree; without it vLLM's server is measured alone."""
        return importlib.util.find_spec(FRONT) is not None

    def ports(self) -> dict[str, int]:
        """Return the port of our server, and that of vLLM's behind it, once they are up."""
        found = {"engine": int(self._port_file.read_text(encoding="utf-8"))}
        return {"endpoint": PORT, **found} if self.has_front else found

    @property
    def _port_file(self) -> Path:
        return self.log.with_suffix(".port")

    @contextlib.contextmanager
    def start(self) -> Iterator[dict[str, Any]]:
        """Start the server; the value holds seconds until ready and what vLLM logged."""
        engine = ("sh", "-c", WITH_PORT, "sh", str(self._port_file), *self.argv())
        argv = (sys.executable, "-m", FRONT, *engine) if self.has_front else engine
        port = PORT if self.has_front else free_port()
        variables = {
            "SAGEMAKER_BIND_TO_PORT": str(PORT),
            "SM_VLLM_PORT": str(port),
            "SM_VLLM_SERVED_MODEL_NAME": MODEL,
            "SM_VLLM_MAX_MODEL_LEN": str(self.options["max_model_len"]),
            "SM_VLLM_MAX_NUM_SEQS": str(self.options["max_num_seqs"]),
            "SM_VLLM_MAX_NUM_QUEUED_REQS": str(self.queue),
        }
        with server(argv, port, self.log, variables) as seconds:
            text = read_log(self.log)
            yield {"ready_seconds": round(seconds, 1), **cache_report(text)}

    def argv(self) -> tuple[str, ...]:
        """Return the command of vLLM's server, without its port."""
        found = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        found += ["--host", "127.0.0.1", "--served-model-name", MODEL]
        for name, value in self.options.items():
            flag = "--" + name.replace("_", "-")
            found += [flag] if value is True else [flag, str(value)]
        return tuple(found)

    def load(
        self, name: str, seed: int, requests: int, concurrency: int, **more: float
    ) -> dict[str, Any]:
        """Return the options of a load on one of `ports()`."""
        return {
            "port": self.ports()[name],
            "path": "/invocations",
            "model": MODEL,
            "requests": requests,
            "concurrency": concurrency,
            "vocabulary": int(CONFIGS[Path(self.options["model"]).name]["vocab_size"]),
            "seed": seed,
            **more,
        }
