"""`python -m engine_build`.

Reads arguments and environment once, wires a build, and turns its end into an exit code.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from engine_build.build import BuiltNetworks, Result, build, build_networks
from engine_build.context import BuildContext
from engine_build.ending import end_in_exit_code, run_program
from engine_build.log import Log
from engine_build.machine import peak_mib
from engine_build.options import Options, options, wants_json
from engine_build.request import build_request
from engine_build.runner import ProcessRunner
from engine_build.settings import settings
from engine_build.store import store_at
from engine_build.work_folder import WorkFolder

VERBS = {
    "known": "is there already",
    "built": "is built",
    "candidate": "is built, and published once it is signed",
}
"""What is said of an engine, by the status of its build."""


def main(
    arguments: Sequence[str], environment: Mapping[str, str], stdout: TextIO, stderr: TextIO
) -> int:
    """Exit codes: 0 built or known; 1, 3, 4, 5, 6 as in errors.py; 130 interrupted."""
    log = Log(stderr)

    def run() -> str:
        chosen = options(arguments)
        with ExitStack() as stack:
            context = build_context(chosen, environment, log, stack)
            result = build_networks(context) if chosen.networks_only else build(context)
            log.note(f"peak memory {peak_mib():.0f} MiB")
        return _format_result(result, log, as_json=chosen.format == "json")

    return end_in_exit_code(run, log, stdout, as_json=wants_json(arguments))


def build_context(
    chosen: Options, environment: Mapping[str, str], log: Log, stack: ExitStack
) -> BuildContext:
    """Resolve a request and enter its work folder. Raises InputRefused."""
    request = build_request(chosen, log)
    work = stack.enter_context(WorkFolder(chosen.out, is_fresh=chosen.candidate is not None))
    log.keep(work.log_path)
    runner = ProcessRunner(log)
    runner.record(work.script_path)
    publish_to = None if chosen.publish is None else store_at(chosen.publish, region=request.region)
    return BuildContext(
        request=request,
        settings=settings(environment),
        log=log,
        runner=runner,
        work=work,
        publish_to=publish_to,
        candidate=chosen.candidate,
        plan_source=chosen.plan_from,
        code_root=Path(__file__).resolve().parents[1],
        now=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _format_result(result: Result | BuiltNetworks, log: Log, *, as_json: bool) -> str:
    seconds = {name: round(duration, 2) for name, duration in log.seconds.items()}
    if isinstance(result, BuiltNetworks):
        fields = {"status": "networks", "network_keys": result.keys, "place": result.place}
        keys = ", ".join(f"{name} {key}" for name, key in result.keys.items())
        text = f"Networks are in {result.place}: {keys}."
    else:
        manifest, archive = result.entry.manifest, result.entry.archive
        fields = {
            "status": result.status,
            "engine_key": manifest.engine_key,
            "place": result.place,
            "archive": archive.model_dump(mode="json"),
            "precision": manifest.precision,
            "decision": manifest.decision,
        }
        verb = VERBS[result.status]
        text = (
            f"Engine {manifest.engine_key} of {manifest.model} {verb}: "
            f"{result.place}/{archive.path} ({manifest.precision})."
        )
    return json.dumps({**fields, "seconds": seconds}) if as_json else text


if __name__ == "__main__":
    # PyTorch's threads wait for each other in a loop; where other work has a core, that made the
    # reference 2 to 5 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    run_program(main)
