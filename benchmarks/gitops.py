"""How long `roundhouse plan` takes and how much memory, and whether plans are true.

Without a network, on many models of which one has changed; and on random edits, beside the change
sets that the local cloud's CloudFormation makes of the same files.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.child import measure_usage
from benchmarks.context import Context
from benchmarks.measure import Bar, Measure, at_most, with_command
from benchmarks.plan_truth import compare_plans
from benchmarks.scale.many_models import many_models
from benchmarks.synth import ENVIRONMENT, roundhouse_command, usage_measures
from roundhouse.processes import Command

COUNT = 500
EDITS = 200
SECONDS_BAR, MEMORY_BAR = at_most(8.0), at_most(450.0)
COMMAND = "make bench BENCH=gitops: roundhouse plan, no network; fastest of the rounds"
EDITS_COMMAND = f"make bench BENCH=gitops: {EDITS} random edits, one seed each"
ISOLATED = ("unshare", "--net", "--map-root-user")
"""A namespace without any network but a loopback that is down."""
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
    plan = replace(plan, argv=(*ISOLATED, *plan.argv))
    usages = [
        measure_usage(plan, folder / "usage.json", context.run) for _ in range(context.rounds(3))
    ]
    name = f"roundhouse plan, one changed of {COUNT} models: "
    measures = with_command(COMMAND, usage_measures(name, usages, SECONDS_BAR, MEMORY_BAR))
    return measures + with_command(EDITS_COMMAND, _truth(context))


def _truth(context: Context) -> list[Measure]:
    """Measure in how many edits a plan and CloudFormation differ."""
    verdicts = list(compare_plans(context.paths, context.empty_folder("plan-truth"), range(EDITS)))
    for line in (line for verdict in verdicts for line in verdict.differences):
        print(line)
    none = Bar(kind="exactly", limit=0)
    differing = sum(bool(verdict.differences) for verdict in verdicts)
    missed = sum(len(verdict.missed_outages) for verdict in verdicts)
    return [
        Measure("edits whose plan is not CloudFormation's change set", differing, "edits", none),
        Measure("outages that the plan does not name", missed, "outages", none),
        Measure("outages", sum(verdict.outages for verdict in verdicts), "outages"),
        Measure("resources compared", sum(item.resources for item in verdicts), "resources"),
    ]
