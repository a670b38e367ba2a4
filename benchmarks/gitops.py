"""How long `roundhouse plan` takes and how much memory, on many models of which one has changed."""

from __future__ import annotations

from benchmarks.child import measure_usage
from benchmarks.context import Context
from benchmarks.measure import Measure, at_most, with_command
from benchmarks.scale.many_models import many_models
from benchmarks.synth import ENVIRONMENT, roundhouse_command, usage_measures
from roundhouse.processes import Command

COUNT = 500
SECONDS_BAR, MEMORY_BAR = at_most(8.0), at_most(450.0)
COMMAND = "make bench BENCH=gitops: roundhouse plan --format json; fastest of the rounds"
GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@example.com")


def gitops(context: Context) -> list[Measure]:
    """Measure the plan of one changed maximum of instances. Raises ValueError when it fails."""
    folder = context.empty_folder("gitops")
    tree = many_models(context.paths.code, folder / "tree", COUNT, environment=ENVIRONMENT)
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "models")):
        outcome = context.run(Command(argv=(*GIT, *words), folder=tree.root))
        if outcome.code != 0:
            raise ValueError(f"git {words[0]} failed: {outcome.last_lines()}")
    tree.change("model-250", {"endpoint": {"scaling": {"max": 5}}})
    root = ("--root", str(tree.root), "--env", ENVIRONMENT)
    plan = roundhouse_command(context, "plan", *root, "--format", "json")
    usages = [
        measure_usage(plan, folder / "usage.json", context.run) for _ in range(context.rounds(3))
    ]
    name = f"roundhouse plan, one changed of {COUNT} models: "
    return with_command(COMMAND, usage_measures(name, usages, SECONDS_BAR, MEMORY_BAR))
