"""`roundhouse acceptance`: the first day of an environment, every unproven line of it tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from roundhouse.cli.options import Env, Form, Format, Root

if TYPE_CHECKING:
    from roundhouse.acceptance.acceptance import AcceptanceOptions
    from roundhouse.acceptance.setup import Setup
    from roundhouse.paths import Paths
    from roundhouse.report import Report

EXAMPLE = "roundhouse acceptance --env dev --max-usd 60"


def acceptance(
    env: Env,
    max_usd: Annotated[
        float | None,
        typer.Option(min=0, help="What the run may cost at most; not in the local cloud."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=1, help="Longest time of all steps but the last, which destroys."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            help="A price that is not known, as NAME=USD, such as training:ml.g6.xlarge=1.2; may "
            "be repeated."
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show steps, resources, time and cost; ask nobody.")
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Only delete what an interrupted run left.")
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Try every unproven line on an account.

    Builds, deploys, breaks, scales and destroys tiny engines beside the environment, and writes
    what differs from what docs/verification.md assumes. Exit code 6 when something does.
    """
    from roundhouse.acceptance.setup import ENVIRONMENT, new_setup, run_folder
    from roundhouse.errors import RoundhouseError, UsageError
    from roundhouse.only_run import only_run
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import LOCAL, valid_tree
    from roundhouse.text import choices

    if plan and clean:
        raise UsageError("--plan and --clean are two things; give one of them.")
    report, paths = open_report(form), current_paths(root)
    environments = valid_tree(paths).environments
    if env not in environments:
        raise UsageError(f"--env {env}: no such environment; {choices(env, environments)}")
    if ENVIRONMENT in environments:
        raise RoundhouseError(
            f"Refused: environments/{ENVIRONMENT}.yaml has the name that runs use for their own "
            "resources; rename that environment."
        )
    setup = new_setup(environments[env], in_local_cloud=env == LOCAL)
    options = _options(max_usd, minutes, price or [])
    if plan:
        _show_plan(setup, options, report, form)
        return
    way_out = "wait for it, or end it with Ctrl-C, which cleans up"
    with only_run(run_folder(paths, env), f"an acceptance run of {env}", way_out):
        if clean:
            _clean(paths, report, setup, form)
        else:
            _run(paths, report, setup, options, form)


def _run(
    paths: Paths, report: Report, setup: Setup, options: AcceptanceOptions, form: Format
) -> None:
    """Run in a local cloud of its own where there is none; print the findings."""
    from local_cloud import lifecycle
    from roundhouse.acceptance.acceptance import run_acceptance
    from roundhouse.acceptance.assumptions import Verdict
    from roundhouse.errors import WrongAnswerError
    from roundhouse.processes import Processes
    from roundhouse.report import print_json
    from roundhouse.session import cloud_folder, start_local_cloud, stop_local_cloud

    is_ours = setup.in_local_cloud and lifecycle.find(cloud_folder(paths)) is None
    if is_ours:
        start_local_cloud(paths, report)
    try:
        result = run_acceptance(paths, report, setup, options, Processes())
    finally:
        if is_ours:
            stop_local_cloud(paths)
    if form is Format.json:
        print_json(result.as_dict())
    else:
        _show_findings(result.findings, report)
        report.print(f"Evidence: {result.evidence}")
    if not result.is_accepted:
        differing = len(result.with_verdict(Verdict.differs))
        missed = len(result.with_verdict(Verdict.not_reached))
        raise WrongAnswerError(
            f"{setup.origin}: {differing} found otherwise than assumed, {missed} not reached; "
            f"{result.evidence}/comparison.md says how."
        )


def _clean(paths: Paths, report: Report, setup: Setup, form: Format) -> None:
    from local_cloud import lifecycle
    from roundhouse.acceptance.acceptance import clean_up
    from roundhouse.processes import Processes
    from roundhouse.report import print_json
    from roundhouse.session import cloud_folder
    from roundhouse.text import quantity

    def is_cloud_up() -> bool:
        return lifecycle.find(cloud_folder(paths)) is not None

    deleted = clean_up(paths, report, setup, Processes(), is_cloud_up=is_cloud_up)
    if form is Format.json:
        print_json({"deleted": list(deleted)})
        return
    for item in deleted:
        report.print(f"  {item}")
    report.print(f"Deleted {quantity(len(deleted), 'thing')}: nothing is left.")


def _options(max_usd: float | None, minutes: float | None, price: list[str]) -> AcceptanceOptions:
    from roundhouse.acceptance.acceptance import AcceptanceOptions

    return AcceptanceOptions(max_usd=max_usd, minutes=minutes, prices=_prices(price))


def _prices(given: list[str]) -> dict[str, float]:
    """Return prices by name. Raises UsageError."""
    from roundhouse.errors import UsageError

    result = {}
    for text in given:
        name, _, number = text.partition("=")
        kind = name.partition(":")[0]
        try:
            usd = float(number)
        except ValueError:
            usd = -1.0
        if kind not in ("hosting", "training", "codebuild", "fleet") or not usd > 0:
            raise UsageError(
                f"--price {text}: takes NAME=USD, such as hosting:ml.g5.xlarge=1.41 (an hour) or "
                "codebuild:linux-gpu.small=0.05 (a minute), above 0."
            )
        result[name] = usd
    return result


def _show_plan(setup: Setup, options: AcceptanceOptions, report: Report, form: Format) -> None:
    """Print steps, resources, time and cost; asks nobody."""
    from roundhouse.acceptance.acceptance import planned_charges, require_possible
    from roundhouse.report import print_json, table

    require_possible(setup)
    steps, items = planned_charges(setup, options)
    minutes = sum(step.limit_minutes for step in steps)
    known = [item.usd for item in items]
    total = None if None in known else sum(usd for usd in known if usd is not None)
    if form is Format.json:
        document: dict[str, Any] = {
            "environment": setup.environment.name,
            "account": setup.environment.account,
            "minutes": minutes,
            "usd_bound": total,
            "steps": [
                {
                    "step": step.name,
                    "minutes": step.limit_minutes,
                    "creates": list(step.creates(setup)),
                    "assumptions": [row.name for row in step.assumptions(setup)],
                }
                for step in steps
            ],
            "charges": [
                {"step": item.step, "what": item.what, "price": item.price_name, "usd": item.usd}
                for item in items
            ],
        }
        print_json(document)
        return
    rows = [
        (step.name, f"{step.limit_minutes:g}", "\n".join(step.creates(setup))) for step in steps
    ]
    report.print_table(
        table(("step", "minutes at most", "creates"), rows, right=("minutes at most",))
    )
    if items:
        cells = [
            (item.step, f"{item.count} x {item.what}", item.price_name,
             "unknown" if item.usd is None else f"{item.usd:.2f}")
            for item in items
        ]  # fmt: skip
        report.print_table(
            table(("step", "rented", "price", "USD at most"), cells, right=("USD at most",))
        )
    cost = "unknown, so the run is refused: give --price" if total is None else f"{total:.2f} USD"
    report.print(f"At most {minutes:g} minutes, and {cost}; S3, KMS and CloudWatch come to cents.")


def _show_findings(findings: Any, report: Report) -> None:
    from roundhouse.acceptance.evidence import COLUMNS, cells
    from roundhouse.report import table

    report.print_table(table(COLUMNS, map(cells, findings)))
