"""`python -m engine_build`: one engine, its networks alone, or one checkpoint of a text generator.

Reads arguments and environment once, wires a build, and turns its end into an exit code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

from engine_build.log import Log, end_in_exit_code, run_program
from engine_build.machine import memory_mib
from engine_build.options import Options, options
from engine_build.runner import Runner
from engine_build.store import store_at
from engine_build.workload import Tools, WorkFolder, settings

if TYPE_CHECKING:
    from engine_build.build import EngineBuild
    from engine_build.text_generation.job import CheckpointBuild


def main(
    arguments: Sequence[str], environment: Mapping[str, str], stdout: TextIO, stderr: TextIO
) -> int:
    """Exit codes: 0 built or known; 1, 3, 4, 5, 6 as in errors.py; 130 interrupted."""
    log = Log(stderr)

    def run() -> str:
        chosen = options(arguments)
        read = settings(environment)
        workload = read_workload(chosen, log)
        with WorkFolder(chosen.out, is_fresh=chosen.candidate is not None) as work:
            log.path = work.log_path
            runner = Runner(log)
            runner.record(work.script_path)
            place, region = chosen.publish, workload.region
            tools = Tools(
                settings=read,
                log=log,
                runner=runner,
                work=work,
                publish_to=None if place is None else store_at(place, region=region),
                candidate=chosen.candidate,
            )
            answer = workload.build(tools)
            log.note(f"peak memory {memory_mib('VmHWM'):.0f} MiB")
        seconds = {name: round(duration, 2) for name, duration in log.seconds.items()}
        is_json = chosen.format == "json"
        return json.dumps({**answer.fields, "seconds": seconds}) if is_json else answer.text

    # Also of a command line that cannot be read.
    as_json = "--format=json" in arguments or ("--format", "json") in pairwise(arguments)
    return end_in_exit_code(run, log, stdout, as_json=as_json)


def read_workload(chosen: Options, log: Log) -> EngineBuild | CheckpointBuild:
    """Read the tree and resolve what is built. Raises InputRefused.

    The libraries of each kind load here: no environment has those of both.
    """
    if chosen.key is not None:
        from engine_build.text_generation.job import read_checkpoint_build

        return read_checkpoint_build(chosen)
    from engine_build.build import EngineBuild
    from engine_build.request import build_request

    return EngineBuild(
        request=build_request(chosen, log),
        plan_source=chosen.plan_from,
        networks_only=chosen.networks_only,
    )


if __name__ == "__main__":
    # PyTorch's threads wait for each other in a loop; where other work has a core, that made the
    # reference 2 to 5 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    run_program(main)
