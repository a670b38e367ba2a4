"""`python -m benchmarks.h200_generation.programs.kv_caches LOGS SECONDS`: caches of many engines.

Standard input: lines of JSON `{"name", "options"}`, options being vLLM's engine arguments. Each
engine starts in a fork of this process, which has imported vLLM, and is killed as soon as it has
logged the tokens of its KV cache, or has ended, or after SECONDS. Standard output has a line
`{"name", "seconds", "code"}` for each; LOGS/NAME.log is what vLLM printed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.h200_generation.programs.answers import open_answers

SIZE = "KV cache size:"
POLL_SECONDS = 0.2


def start_engine(options: dict[str, Any], log: Path) -> None:
    """Start an engine in a session of its own, its output in a file."""
    open_answers(str(log))
    os.setsid()
    from vllm import LLM

    LLM(**options)


def run_engine(options: dict[str, Any], log: Path, seconds: float) -> int | None:
    """Return the exit code of an engine; None for one that was killed."""
    log.unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(target=start_engine, args=(options, log))
    process.start()
    deadline = time.monotonic() + seconds
    while process.is_alive() and time.monotonic() < deadline and SIZE not in _text(log):
        process.join(POLL_SECONDS)
    code = process.exitcode
    try:
        os.killpg(process.pid or 0, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.join()
    return code


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def main(logs: str, seconds: str) -> None:
    """Start each engine of standard input, one after the other."""
    answers = open_answers(str(Path(logs) / "kv_caches.log"))
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import vllm.entrypoints.llm
    import vllm.v1.worker.gpu_worker  # noqa: F401

    for line in sys.stdin:
        case, begin = json.loads(line), time.monotonic()
        code = run_engine(case["options"], Path(logs) / f"{case['name']}.log", float(seconds))
        answer = {"name": case["name"], "seconds": time.monotonic() - begin, "code": code}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
