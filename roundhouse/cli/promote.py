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
    pull_request: Annotated[
        bool, typer.Option("--pr", help="Push the promotion to a branch and open its pull request.")
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Copy tested engines to the next environment.

    By digest, and nothing is built. Writes promotions/ENV.lock.yaml, which pins the commit: merge
    it to deploy, revert it to roll back. Refused (exit 4) while a gate of the receiving environment
    is not met.
    """
    from onboarding.promotion import write_promotion
    from roundhouse import settings
    from roundhouse.aws.clients import aws_clients
    from roundhouse.gitops.forge.forge import forge_of
    from roundhouse.gitops.promote import prepare_promotion
    from roundhouse.gitops.promotion_request import open_promotion_request
    from roundhouse.paths import current_paths, displayed_path
    from roundhouse.processes import Processes
    from roundhouse.report import open_report, print_json

    paths, report, run = current_paths(root), open_report(form), Processes()
    forge = forge_of(settings.inherited()) if pull_request else None
    prepared = prepare_promotion(
        paths,
        report,
        source=source,
        destination=destination,
        clients_of=lambda environment: aws_clients(environment.region),
        run=run,
        models=model or (),
    )
    promotion = prepared.promotion
    what = f"commit {promotion.commit[:12]}" if not model else ", ".join(model)
    document = promotion.model_dump(mode="json", by_alias=True)
    if not prepared.is_new:
        message = f"{destination} is at this promotion already; nothing was changed."
    elif forge is None:
        path = displayed_path(write_promotion(paths.tree, promotion))
        message = f"Wrote {path}: {destination} deploys {what} once that file is merged."
    else:
        title = f"Promote {what} from {source} to {destination}"
        opened = open_promotion_request(paths, report, promotion, title, forge, run)
        document["pull_request"] = opened.address
        message = f"{opened.address}: {destination} deploys {what} once it is merged."
    if form is Format.json:
        print_json(document)
    else:
        report.print(message)
