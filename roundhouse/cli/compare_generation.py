"""`roundhouse compare` of a text generator: a measured baseline against its plan."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from onboarding.generation_resolve import generation_deployments
from onboarding.platform import instance_types
from onboarding.prices import price
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.quantizer_route import quantizer_route
from roundhouse.cli.options import Format
from roundhouse.compare.sizing import parse_demand
from roundhouse.errors import UsageError
from roundhouse.gitops.build_estimates import checkpoint_usd
from roundhouse.load_test.generation.subject import generator_spec
from roundhouse.load_test.result import circumstances
from roundhouse.paths import Paths, displayed_path, output_folder
from roundhouse.report import Report, print_json, table
from roundhouse.reports.generation_savings import (
    COLUMNS,
    RIGHT,
    headline,
    lines,
    rows,
    savings_page,
)
from roundhouse.savings.generation import (
    GenerationReturn,
    baseline_side,
    plan_side,
    read_baseline,
)
from roundhouse.session import valid_tree
from roundhouse.text import choices


def compare_generation(
    paths: Paths,
    report: Report,
    env: str,
    model: str,
    baseline: Path | None,
    demand: str | None,
    instance_type: str | None,
    output: Path | None,
    form: Format,
) -> None:
    """Print and write the return on investment of a plan. Raises RoundhouseError, FaultsError."""
    spec = generator_spec(paths, model, env)
    tree = valid_tree(paths)
    region = tree.environments[env].region
    (deployment,) = generation_deployments(tree, env, (model,))
    chosen, entry = deployment.candidate, deployment.entry
    knee = None if entry is None else entry.knee
    is_measured = knee is not None and knee.instance_type == chosen.instance_type
    tokens = None if demand is None else parse_demand(demand) * spec.context.mean_output
    side, wanted = plan_side(
        chosen,
        demand=tokens,
        concurrency=spec.slo.concurrency,
        price=price(region, "hosting", chosen.instance_type),
        measured=knee.output_tokens_per_second if knee is not None and is_measured else None,
    )
    known = instance_types()
    if instance_type is not None and instance_type not in known:
        allowed = choices(instance_type, sorted(known))
        raise UsageError(f"--instance-type {instance_type}: is not known; {allowed}")
    result = GenerationReturn(
        model=model,
        environment=env,
        demand=wanted,
        baseline=baseline_side(
            None if baseline is None else read_baseline(baseline),
            spec=spec,
            demand=wanted,
            instance=None if instance_type is None else known[instance_type],
            price=None if instance_type is None else price(region, "hosting", instance_type),
        ),
        plan=side,
        build_usd=_build_usd(deployment),
    )
    _show(paths, report, result, output, form)


def _build_usd(deployment: GenerationDeployment) -> float | None:
    """Return what building the checkpoint that serves took; None where it is not known."""
    entry = deployment.entry
    if entry is None:
        return None
    route = quantizer_route(deployment.spec, entry.scheme, deployment.checkpoint)
    region, instance_type = deployment.environment.region, deployment.candidate.instance_type
    return checkpoint_usd(region, route, instance_type, entry.seconds)


def _show(
    paths: Paths, report: Report, result: GenerationReturn, output: Path | None, form: Format
) -> None:
    default = paths.build / "compare" / result.environment / result.model
    folder = default if output is None else output
    command = shlex.join(["roundhouse", *sys.argv[1:]])
    document = {**result.as_dict(), "command": command}
    with output_folder(folder):
        page = savings_page(result, command, circumstances().date)
        (folder / "return.html").write_bytes(page)
        (folder / "return.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if form is Format.json:
        print_json(document)
        return
    report.print_table(table(COLUMNS, rows(result), right=RIGHT))
    for line in lines(result):
        report.print(line)
    report.print(headline(result))
    report.print(f"The report: {displayed_path(folder / 'return.html')}, return.json.")
