"""How long synth takes and how much memory, by number of models.

One YAML file, one lock and one endpoint stack each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.child import Usage, measure_usage
from benchmarks.measure import Bar, Measure
from benchmarks.scale.application import Application
from benchmarks.scale.many_models import ManyModels, many_models
from benchmarks.servers.fixtures import rounds_wanted
from roundhouse.paths import Paths
from roundhouse.processes import Command, Processes

COUNTS = (1, 10, 100, 500)
ENVIRONMENT, CHANGED = "dev", "model-250"
COMMAND = "make bench BENCH=synth: python app.py, built-in validation off; fastest of the rounds"
BARS = {"s": 25.0, "MB": 450.0}
ONE_BAR = 3.0
LINEAR_BAR = 1.5
"""A further endpoint's cost among 500 against that among 100; 1 is a straight line."""


def synth(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Every measure. Raises ValueError when a run fails."""
    place = at.build / "bench" / "synth"
    shutil.rmtree(place, ignore_errors=True)
    application = Application(at=at, run=run, variables=variables, place=place)
    rounds = rounds_wanted(variables, 3)
    trees = {
        count: many_models(at.code, place / f"tree-{count}", count, environment=ENVIRONMENT)
        for count in COUNTS
    }
    whole = {count: _rounds(application, tree, rounds) for count, tree in trees.items()}
    largest = trees[COUNTS[-1]]
    largest.change(CHANGED, {"endpoint": {"scaling": {"max": 5}}})
    return [
        *(measure for count in COUNTS for measure in _of_count(count, whole[count])),
        Measure(name=(
            "a further endpoint: 100 to 500 / "
            "10 to 100"
        ), value=_growth(whole), unit="x processor time",
                command=COMMAND, bar=Bar(kind="at most", limit=LINEAR_BAR)),
        *_of_one(_rounds(application, largest, rounds, endpoint=CHANGED)),
        *_of_commands(at, run, variables, place),
    ]  # fmt: skip


def _rounds(
    application: Application, tree: ManyModels, rounds: int, endpoint: str | None = None
) -> list[Usage]:
    return [
        application.synthesised(tree.root, environment=ENVIRONMENT, endpoint=endpoint)
        for _ in range(rounds)
    ]


def _of_count(count: int, taken: Sequence[Usage]) -> Iterator[Measure]:
    """Bars are those of the largest count."""
    bars = (
        {unit: Bar(kind="at most", limit=limit) for unit, limit in BARS.items()}
        if count == COUNTS[-1]
        else {}
    )
    name = f"{count} endpoint{'s' if count > 1 else ''}"
    yield _fastest(f"{name}: synth", [usage.seconds for usage in taken], "s", bars.get("s"))
    yield _fastest(f"{name}: processor time", [usage.processor_seconds for usage in taken], "s")
    peak = max(usage.peak_sum_mb for usage in taken)
    yield Measure(
        name=f"{name}: peak memory of Python and Node",
        value=peak,
        unit="MB",
        command=COMMAND,
        bar=bars.get("MB"),
    )


def _of_one(taken: Sequence[Usage]) -> Iterator[Measure]:
    name = f"one changed of {COUNTS[-1]}, -c endpoint={CHANGED}"
    yield _fastest(
        f"{name}: synth",
        [usage.seconds for usage in taken],
        "s",
        Bar(kind="at most", limit=ONE_BAR),
    )
    yield _fastest(f"{name}: processor time", [usage.processor_seconds for usage in taken], "s")
    yield Measure(
        name=f"{name}: peak memory",
        value=max(usage.peak_sum_mb for usage in taken),
        unit="MB",
        command=COMMAND,
    )


def _growth(whole: Mapping[int, Sequence[Usage]]) -> float:
    """How much more a further endpoint takes among many than among few."""
    least = {
        count: min(usage.processor_seconds for usage in taken) for count, taken in whole.items()
    }
    few, some, many = COUNTS[-3:]
    return round(
        ((least[many] - least[some]) / (many - some)) / ((least[some] - least[few]) / (some - few)),
        2,
    )


def _of_commands(
    at: Paths, run: Processes, variables: Mapping[str, str], place: Path
) -> Iterator[Measure]:
    """The desk's own commands on as many models.

    `local` with no cloud in sight, since asking an account takes what it takes.
    """
    trees = {"check": place / f"tree-{COUNTS[-1]}", "status": place / "tree-local"}
    changes = {"serving": {"server": "python"}, "endpoint": {"instance_type": "ml.c7i.large"}}
    many_models(at.code, trees["status"], COUNTS[-1], environment="local", changes=changes)
    for verb, tree in trees.items():
        argv = (
            str(at.venv_python("roundhouse")),
            "-m",
            "roundhouse",
            verb,
            "--root",
            str(tree),
            "--format",
            "json",
        )
        quiet = Command(
            argv=("sh", "-c", '"$@" > /dev/null', "sh", *argv),
            folder=at.code,
            environment=variables,
        )
        taken = measure_usage(quiet, place / "taken.json", run)
        if taken.code != 0:
            raise ValueError(f"roundhouse {verb} ended with {taken.code} on {tree}")
        yield Measure(
            name=f"roundhouse {verb} of {COUNTS[-1]} models",
            value=taken.seconds,
            unit="s",
            command=f"{COMMAND}; once",
        )
        yield Measure(
            name=f"roundhouse {verb}: processor time",
            value=taken.processor_seconds,
            unit="s",
            command=f"{COMMAND}; once",
        )


def _fastest(name: str, values: Sequence[float], unit: str, bar: Bar | None = None) -> Measure:
    return Measure(
        name=name,
        value=min(values),
        low=min(values),
        high=max(values),
        unit=unit,
        command=COMMAND,
        bar=bar,
    )
