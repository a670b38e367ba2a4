"""How long synth takes and how much memory, by number of models.

One YAML file, one lock and one endpoint stack for each model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.child import Usage, measure_usage
from benchmarks.context import Context
from benchmarks.measure import Bar, Measure, at_most, of_rounds, with_command
from benchmarks.scale.many_models import many_models
from benchmarks.trees import PYTHON_SERVER
from roundhouse.processes import Command
from roundhouse.settings import child_environment
from roundhouse.text import quantity

COUNTS = (1, 10, 100, 500)
MOST = COUNTS[-1]
ENVIRONMENT, CHANGED = "dev", "model-250"
COMMAND = "make bench BENCH=synth: python app.py, built-in validation off; fastest of the rounds"
SECONDS_BAR, MEMORY_BAR, ONE_BAR = at_most(25.0), at_most(450.0), at_most(3.0)
GROWTH_BAR = at_most(1.5)
"""A further endpoint's cost among 500 against that among 100; 1 is a straight line."""
LOCAL = {"serving": PYTHON_SERVER, "endpoint": {"instance_type": "ml.c7i.large"}}


def synth(context: Context) -> list[Measure]:
    """Measure app.py on each number of models, and the commands on the most.

    Raises ValueError when a run fails.
    """
    folder, code = context.empty_folder("synth"), context.paths.code
    trees = {
        count: many_models(code, folder / f"tree-{count}", count, environment=ENVIRONMENT)
        for count in COUNTS
    }
    usages = {count: _rounds(context, trees[count].root) for count in COUNTS}
    trees[MOST].change(CHANGED, {"endpoint": {"scaling": {"max": 5}}})
    one = _rounds(context, trees[MOST].root, endpoint=CHANGED)
    measures = []
    for count in COUNTS:
        bars = (SECONDS_BAR, MEMORY_BAR) if count == MOST else (None, None)
        measures += usage_measures(f"{quantity(count, 'endpoint')}: ", usages[count], *bars)
    name = "a further endpoint: 100 to 500 / 10 to 100"
    measures += [
        Measure(name, growth(usages), "x processor time", GROWTH_BAR),
        *usage_measures(f"one changed of {MOST}, -c endpoint={CHANGED}: ", one, ONE_BAR, None),
    ]
    status = many_models(code, folder / "tree-local", MOST, environment="local", changes=LOCAL)
    for verb, tree in (("check", trees[MOST]), ("status", status)):
        command = roundhouse_command(context, verb, "--root", str(tree.root), "--format", "json")
        usage = measure_usage(command, folder / "usage.json", context.run)
        measures += [
            Measure(f"roundhouse {verb} of {MOST} models", usage.seconds, "s"),
            Measure(f"roundhouse {verb}: processor time", usage.processor_seconds, "s"),
        ]
    return with_command(COMMAND, measures)


def usage_measures(
    name: str, usages: Sequence[Usage], seconds_bar: Bar | None, memory_bar: Bar | None
) -> list[Measure]:
    """Return the fastest time and the largest memory of several rounds."""
    seconds = [usage.seconds for usage in usages]
    processor_seconds = [usage.processor_seconds for usage in usages]
    memory = [usage.peak_sum_mb for usage in usages]
    return [
        of_rounds(f"{name}wall time", seconds, "s", seconds_bar, value=min),
        of_rounds(f"{name}processor time", processor_seconds, "s", value=min),
        of_rounds(f"{name}peak memory of all processes", memory, "MB", memory_bar, value=max),
    ]


def growth(usages: Mapping[int, Sequence[Usage]]) -> float:
    """Return the cost of a further endpoint among many models over that among few."""
    least = {count: min(usage.processor_seconds for usage in usages[count]) for count in usages}
    few, some, many = COUNTS[-3:]
    late = (least[many] - least[some]) / (many - some)
    early = (least[some] - least[few]) / (some - few)
    return round(late / early, 2)


def _rounds(context: Context, tree: Path, endpoint: str | None = None) -> list[Usage]:
    folder = context.folder("synth")
    usages = []
    for _ in range(context.rounds(3)):
        shutil.rmtree(folder / "out", ignore_errors=True)
        command = app_command(context, tree, folder / "out", endpoint)
        usages.append(measure_usage(command, folder / "usage.json", context.run))
    return usages


def app_command(context: Context, tree: Path, out: Path, endpoint: str | None) -> Command:
    """Return `python app.py` as the cdk command line runs it, without its built-in validation."""
    cdk = json.loads((context.paths.code / "cdk.json").read_text(encoding="utf-8"))
    request = {"env": ENVIRONMENT, "root": str(tree)} | ({"endpoint": endpoint} if endpoint else {})
    variables = {
        **context.variables,
        "CDK_OUTDIR": str(out),
        "CDK_CONTEXT_JSON": json.dumps({**cdk["context"], **request}),
        "CDK_VALIDATION": "false",
    }
    return Command(
        argv=(str(context.paths.venv_python("roundhouse")), "app.py"),
        folder=context.paths.code,
        environment=child_environment(variables),
    )


def roundhouse_command(context: Context, *arguments: str) -> Command:
    """Return a `roundhouse` command whose output is dropped."""
    python = str(context.paths.venv_python("roundhouse"))
    argv = ("sh", "-c", '"$@" > /dev/null', "sh", python, "-m", "roundhouse", *arguments)
    return Command(argv=argv, folder=context.paths.code, environment=context.variables)
