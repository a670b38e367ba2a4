"""`python -m benchmarks.h200.experiment FOLDER MODEL OUT`: our server before a GPU's engine,
against PyTorch behind Flask.

FOLDER: what `carry unpack` left; archives are kept there between calls. MODEL: bert-large or
minilm. OUT: a folder for JSON,
written anew after each round. `--tiny` runs the same lines with a tiny network on the CPU. Exit
code 1 when a bar was missed.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from benchmarks.h200.bars import GROUP, bars
from benchmarks.h200.contenders import contenders
from benchmarks.h200.plan import REPOSITORY, Plan, plan_asked
from benchmarks.h200.trial import Trial
from benchmarks.measure import Circumstances, table, write
from benchmarks.servers.mix import binary, groups, kserve, plain, sentences
from benchmarks.servers.running import Running, running
from benchmarks.servers.wrk import Wrk, requests_file, wrk_program
from roundhouse.processes import Command, Processes


def experiment(plan: Plan) -> int:
    """Makes the archive, measures, writes JSON, and says which bars hold."""
    plan.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    _made(plan)
    _say(f"archive after {time.monotonic() - begin:.0f} s")
    with _servers(plan) as servers:
        _say(f"{len(servers)} servers ready after {time.monotonic() - begin:.0f} s")
        trial = Trial(plan=plan, servers=servers, wrk=_wrk(plan))
        trial.check()
        found: list[dict[str, Any]] = []
        for number in range(plan.rounds):
            found.append(trial.round(number))
            _write(plan, found, servers)
            _say(f"round {number + 1} of {plan.rounds} after {time.monotonic() - begin:.0f} s")
    measures = bars(plan.model, found, {number: plan.cores(number) for number in plan.processes})
    where = Circumstances(
        machine=_machine(plan), date=datetime.datetime.now(datetime.UTC).date().isoformat()
    )
    write(measures, where, plan.out / f"servers-{plan.model}.json")
    Console(width=150).print(table(f"{plan.model}, {where.machine}", measures))
    return 0 if all(each.verdict != "missed" for each in measures) else 1


def _made(plan: Plan) -> None:
    cpu = ("--cpu",) if plan.tiny else ()
    target = (plan.model, str(plan.archive), str(plan.folder / "tokenizer.json"))
    plan.archive.parent.mkdir(parents=True, exist_ok=True)
    argv = (sys.executable, "-m", "benchmarks.h200.programs.archive", *target, *cpu)
    outcome = Processes()(
        Command(argv=argv, folder=REPOSITORY), lambda line: print(f"    {line}", flush=True)
    )
    if outcome.code != 0:
        raise ValueError(f"the archive was not made: {outcome.last_lines()}")
    texts = sentences(REPOSITORY)
    (plan.folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    requests_file([kserve([text]) for text in texts], plan.folder / "requests" / "kserve")
    requests_file([plain([text]) for text in texts], plan.folder / "requests" / "plain")
    requests_file(
        [binary(group) for group in groups(texts, GROUP, 256)], plan.folder / "requests" / "sixteen"
    )


def _wrk(plan: Plan) -> Wrk:
    carried = plan.folder / "wrk" / "wrk"
    program = str(carried) if carried.is_file() else None
    return wrk_program(
        plan.folder,
        Processes(),
        program=program,
        threads=1 if plan.tiny else plan.load_threads,
        cores=plan.load_cores,
    )


@contextlib.contextmanager
def _servers(plan: Plan) -> Iterator[dict[str, Running]]:
    """All of them up at once; who is not asked costs nothing."""
    with contextlib.ExitStack() as stack:
        yield {
            each.name: stack.enter_context(
                running(each, plan.out / "logs" / f"{each.name.replace(' ', '-')}.log")
            )
            for each in contenders(plan)
        }


def _write(plan: Plan, found: list[dict[str, Any]], servers: Mapping[str, Running]) -> None:
    starts = {name: server.ready_seconds for name, server in servers.items()}
    raw = {
        "model": plan.model,
        "machine": _machine(plan),
        "ready_seconds": starts,
        "rounds": found,
        "more": dict(plan.more),
    }
    (plan.out / f"servers-{plan.model}-rounds.json").write_text(
        json.dumps(raw, indent=1) + "\n", encoding="utf-8"
    )


def _machine(plan: Plan) -> str:
    import torch

    cores = f"{os.cpu_count()} CPU cores"
    return (
        f"CPU only, {cores}"
        if plan.tiny
        else f"{torch.cuda.get_device_name(0)}, {cores}, PyTorch {torch.__version__}"
    )


def _say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(experiment(plan_asked(sys.argv[1:])))
    except ValueError as fault:
        print(fault, file=sys.stderr)
        sys.exit(1)
