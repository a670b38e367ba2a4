"""`roundhouse promote`: engines that one environment tested, copied to the next one."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Form, Format, Root

EXAMPLE = "roundhouse promote --from staging --to prod"


def promote(
    source: Annotated[
        str, typer.Option("--from", help="The environment that built and tested the engines.")
    ],
    destination: Annotated[
        str, typer.Option("--to", help="The environment that receives them; its file names --from.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Move this model alone to the commit; may be repeated; default: every model."
        ),
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Copy tested engines to the next environment.

    By digest, and nothing is built. Writes promotions/ENV.lock.yaml, which pins the commit: merge
    it to deploy, revert it to roll back. Refused (exit 4) while a gate of the receiving environment
    is not met.
    """
    from roundhouse.aws.clients import aws_clients
    from roundhouse.gitops.promote import promote as promote_engines
    from roundhouse.paths import current_paths, displayed_path
    from roundhouse.processes import Processes
    from roundhouse.report import open_report, print_json

    paths, report = current_paths(root), open_report(form)
    promoted = promote_engines(
        paths,
        report,
        source=source,
        destination=destination,
        clients_of=lambda environment: aws_clients(environment.region),
        run=Processes(),
        models=model or (),
    )
    if form is Format.json:
        print_json(promoted.promotion.model_dump(mode="json", by_alias=True))
    elif promoted.path is None:
        report.print(f"{destination} is at this promotion already; nothing was changed.")
    else:
        report.print(
            f"Wrote {displayed_path(promoted.path)}: {destination} deploys commit "
            f"{promoted.promotion.commit[:12]} once that file is merged."
        )
