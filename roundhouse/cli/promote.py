"""`roundhouse promote`: engines that one environment tested, copied to the next one."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Root, TextFormat

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
    form: Annotated[
        TextFormat,
        typer.Option(
            "--format",
            help="json: the promotion as one document; markdown: the text of its pull request.",
        ),
    ] = TextFormat.text,
) -> None:
    """Copy tested engines to the next environment.

    By digest, and nothing is built. Writes promotions/ENV.lock.yaml, which pins the commit: merge
    it to deploy, revert it to roll back. Refused (exit 4) while a gate of the receiving environment
    is not met.
    """
    from onboarding.promotion import write_promotion
    from roundhouse.aws.clients import aws_clients
    from roundhouse.gitops.promote import prepare_promotion, promotion_markdown
    from roundhouse.paths import current_paths, displayed_path
    from roundhouse.processes import Processes
    from roundhouse.report import open_report, print_json

    paths, report = current_paths(root), open_report("" if form is TextFormat.text else "json")
    prepared = prepare_promotion(
        paths,
        report,
        source=source,
        destination=destination,
        clients_of=lambda environment: aws_clients(environment.region),
        run=Processes(),
        models=model or (),
    )
    promotion = prepared.promotion
    message = f"{destination} is at this promotion already; nothing was changed."
    if prepared.is_new:
        what = f"commit {promotion.commit[:12]}" if not model else ", ".join(model)
        path = displayed_path(write_promotion(paths.tree, promotion))
        message = f"Wrote {path}: {destination} deploys {what} once that file is merged."
    if form is TextFormat.json:
        print_json(promotion.model_dump(mode="json", by_alias=True))
    elif form is TextFormat.markdown:
        print(promotion_markdown(promotion))
    report.print(message)
