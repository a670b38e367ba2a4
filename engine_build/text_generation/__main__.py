"""`python -m engine_build.text_generation`: one checkpoint of a text generator.

Reads arguments and environment once, wires a build, and turns its end into an exit code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from engine_build.ending import end_in_exit_code, run_program
from engine_build.log import Log
from engine_build.machine import peak_mib
from engine_build.options import wants_json
from engine_build.runner import ProcessRunner
from engine_build.settings import settings
from engine_build.store import store_at
from engine_build.text_generation.job import CheckpointJob, Status
from engine_build.text_generation.request import checkpoint_request, installed_tools, options
from engine_build.work_folder import WorkFolder
from onboarding.text_generation.checkpoint_lock import CheckpointEntry

VERBS = {
    "known": "is there already",
    "built": "is built",
    "candidate": "is built, and published once it is signed",
}
"""What is said of a checkpoint, by the status of its build."""
VARIABLES = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LLM_COMPRESSOR_LOG_DISABLED": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    # PyTorch's threads wait for each other in a loop; other work may have the core.
    "OMP_WAIT_POLICY": "passive",
}
"""Read by libraries when they are imported, which a build does once it has begun."""


def main(
    arguments: Sequence[str], environment: Mapping[str, str], stdout: TextIO, stderr: TextIO
) -> int:
    """Exit codes: 0 built or known; 1, 5, 6 as in errors.py; 130 interrupted.

    A training job calls it too, so that it sets the libraries' variables itself.
    """
    log = Log(stderr)
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)

    def run() -> str:
        chosen = options(arguments)
        read = settings(environment)
        request, tools = checkpoint_request(chosen), installed_tools()
        with WorkFolder(chosen.out, is_fresh=chosen.candidate is not None) as work:
            log.keep(work.log_path)
            runner = ProcessRunner(log)
            runner.record(work.script_path)
            region = request.environment.region
            job = CheckpointJob(
                request=request,
                tools=tools,
                work=work,
                log=log,
                runner=runner,
                store=None if chosen.store is None else store_at(chosen.store, region=region),
                upload=chosen.upload,
                candidate=chosen.candidate,
                settings=read,
                token=environment.get("HF_TOKEN") or None,
            )
            status, entry = job.run()
            log.note(f"peak memory {peak_mib():.0f} MiB")
        return _format_result(status, entry, log, as_json=chosen.format == "json")

    return end_in_exit_code(run, log, stdout, as_json=wants_json(arguments))


def _format_result(status: Status, entry: CheckpointEntry, log: Log, *, as_json: bool) -> str:
    if as_json:
        seconds = {name: round(duration, 2) for name, duration in log.seconds.items()}
        return json.dumps(
            {
                "status": status,
                "checkpoint_key": entry.checkpoint_key,
                "scheme": entry.scheme,
                "accepted": entry.accepted,
                "verdict": entry.reason or "accepted",
                "weight_bytes": entry.weight_bytes,
                "seconds": seconds,
            }
        )
    verdict = "accepted" if entry.accepted else f"not accepted: {entry.reason}"
    return (
        f"Checkpoint {entry.checkpoint_key} of {entry.model} ({entry.scheme}) {VERBS[status]}: "
        f"{entry.weight_bytes / 2**20:.0f} MiB of weights, {verdict}."
    )


if __name__ == "__main__":
    run_program(main)
