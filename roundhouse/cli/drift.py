"""`roundhouse drift`: what somebody changed by hand, or no file names any more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from roundhouse.cli.options import Env, Root, TextFormat

EXAMPLE = "roundhouse drift --env prod --format json"


def drift(
    env: Env,
    root: Root = None,
    form: Annotated[
        TextFormat,
        typer.Option("--format", help="json: one document; markdown: the text of an issue."),
    ] = TextFormat.text,
) -> None:
    """Compare what runs with what was deployed.

    Endpoint configs, weights, counts, bounds of scaling, copies, protection, and stacks that no
    file names; for the rest `aws cloudformation detect-stack-drift`. What scaling and schedules
    change is no drift. Exit code 2 when something differs.
    """
    from roundhouse.deploy.stacks import environment_templates
    from roundhouse.errors import DriftError
    from roundhouse.gitops.drift import drift_markdown, drift_table, environment_drift
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session
    from roundhouse.text import quantity

    report = open_report("" if form is TextFormat.text else "json")
    session = open_session(current_paths(root), report, env)
    with report.step("Comparing what runs with what was deployed") as step:
        templates = environment_templates(session)
        found = environment_drift(session, templates)
        step.finish(f"{quantity(len(templates), 'stack')}, {quantity(len(found), 'difference')}")
    if form is TextFormat.json:
        print_json([asdict(item) for item in found])
    elif form is TextFormat.markdown:
        print(drift_markdown(env, found))
    elif found:
        report.print_table(drift_table(found))
    if found:
        raise DriftError(
            f"{env} is not as deployed in {quantity(len(found), 'place')}; `roundhouse deploy "
            f"--env {env}` does not undo changes that its templates do not see: put them back by "
            "hand, or change the files."
        )
