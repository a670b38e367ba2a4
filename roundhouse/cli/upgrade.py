"""`roundhouse upgrade`: newer platforms, as the installed packages know them."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Env, Form, Format

EXAMPLE = "roundhouse upgrade --env dev"


def upgrade(
    env: Env,
    pr: Annotated[
        bool, typer.Option("--pr", help="Push the branch and open or update its pull request.")
    ] = False,
    base: Annotated[
        str, typer.Option(metavar="BRANCH", help="The branch that the pull request is for.")
    ] = "main",
    form: Form = Format.text,
) -> None:
    """Write newer platforms on a branch.

    Compares Triton images, host images, CDK, Node and Python with the installed packages, without a
    network, writes what follows from them on branch roundhouse/upgrade-PLATFORM, and lists the
    engines to rebuild. What only a person can judge is said. Your folder is not touched.
    """
    import datetime

    from roundhouse import settings
    from roundhouse.gitops.forge.forge import forge_of
    from roundhouse.gitops.platform_upgrade import read_packages
    from roundhouse.gitops.upgrade import (
        ENGINE_COLUMNS,
        FINDING_COLUMNS,
        engine_rows,
        engine_total,
        finding_rows,
        pull_request_body,
    )
    from roundhouse.gitops.upgrade import upgrade as write_upgrade
    from roundhouse.paths import current_paths
    from roundhouse.processes import Processes
    from roundhouse.report import open_report, print_json, table

    paths, report, run = current_paths(), open_report(form), Processes()
    forge = forge_of(settings.inherited()) if pr else None
    facts = read_packages(paths, run)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    with report.step("Comparing the platform with the installed packages") as step:
        result = write_upgrade(paths, env, facts, today, run, push=pr)
        step.finish(result.branch or "nothing to write")
    address = None
    if forge is not None and result.branch is not None:
        address = forge.open_pull_request(
            result.branch, base, result.title, pull_request_body(result)
        )
    if form is Format.json:
        print_json({**result.as_dict(), "pull_request": address})
        return
    if result.findings:
        report.print_table(table(FINDING_COLUMNS, finding_rows(result.findings)))
    if result.branch is None:
        report.print(
            f"Nothing to write: {env} serves with {result.platform}, and SageMaker's newest image "
            f"by sagemaker-core {facts.sdk} is no newer."
        )
        return
    if result.engines:
        report.print_table(table(ENGINE_COLUMNS, engine_rows(result.engines),
                                 title=engine_total(result.engines)))  # fmt: skip
    for fault in result.faults:
        report.print(f"✗ {fault}")
    way_out = address or "Push it and open a pull request, or use --pr."
    report.print(f"Wrote branch {result.branch} ({(result.commit or '')[:12]}). {way_out}")
