"""`roundhouse prices`: what AWS charges in the regions of the environments."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Form, Format, Root

EXAMPLE = "roundhouse prices --update --region eu-west-1"


def prices(
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Read AWS's price list and write onboarding/data/prices.yaml."
        ),
    ] = False,
    region: Annotated[
        list[str] | None,
        typer.Option(help="Region; may be repeated; default: those of environments/."),
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Show or update the prices that costs follow from.

    An update needs credentials with pricing:GetProducts; nothing else does.
    """
    import datetime

    from onboarding.platform import instance_types
    from onboarding.prices import PRICES_FILE, price_list
    from roundhouse.aws.clients import aws_clients
    from roundhouse.gitops.price_update import API_REGION, with_updates, write_prices
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json, table
    from roundhouse.session import LOCAL, valid_tree

    paths, report = current_paths(root), open_report(form)
    environments = valid_tree(paths).environments.values()
    regions = sorted(set(region or (item.region for item in environments if item.name != LOCAL)))
    found = price_list()
    if update:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        with report.step("Reading the price list") as step:
            found = with_updates(found, aws_clients(API_REGION)("pricing"), regions, today)
            write_prices(paths.code / "onboarding" / "data" / PRICES_FILE, found)
            step.finish(f"{', '.join(regions)}")
    if form is Format.json:
        print_json(found.model_dump(mode="json"))
        return
    for name in regions:
        known = found.regions.get(name)
        if known is None:
            report.print(f"{name}: no price is known; `roundhouse prices --update` reads them.")
            continue
        rows = [
            (instance, *(f"{values[instance]:.4f}" if instance in values else "unknown"
                         for values in (known.hosting, known.training)))
            for instance in instance_types()
        ]  # fmt: skip
        title = f"{name}: USD an hour, {known.date}, {known.source}"
        columns = ("instance type", "hosting", "training")
        report.print_table(table(columns, rows, right=columns[1:], title=title))
