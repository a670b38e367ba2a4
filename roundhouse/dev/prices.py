"""Reads AWS's Price List and writes onboarding/data/prices.yaml; `make prices` runs it.

Sources: AWS Price List Query API (`GetProducts`); attribute names as its SageMaker and CodeBuild
products have them.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml

from onboarding.lock import replace_text
from onboarding.platform import instance_types
from onboarding.prices import PRICES_FILE, PriceList, PriceTable, price_list
from roundhouse.aws.clients import Client, aws_clients, calling, pages
from roundhouse.errors import RoundhouseError
from roundhouse.paths import current_paths
from roundhouse.session import LOCAL, valid_tree

API_REGION = "us-east-1"
"""The Price List API has a few regions alone, and each answers for all."""
SOURCE = "AWS Price List API"
SAGEMAKER, CODEBUILD = "AmazonSageMaker", "CodeBuild"
COMPONENTS = {"hosting": "Hosting", "training": "Training"}
CODEBUILD_USAGE = re.compile(
    r"Build-Min:(?P<system>Linux|LinuxGPU):g1\.(?P<size>small|medium|x?large)"
)
CODEBUILD_SYSTEMS = {"Linux": "linux", "LinuxGPU": "linux-gpu"}
HEADER = """\
# USD an hour of one SageMaker hosting or training instance, and USD a minute of one CodeBuild
# build, by region: tables, each with its source and date; of a type that several have, the newest
# counts. `make prices` writes a region anew. A type that is not listed has no known price, and
# nothing is computed from it; EC2's prices are not SageMaker's.
"""


def with_updates(
    prices: PriceList, client: Client, regions: Iterable[str], today: date
) -> PriceList:
    """Return the price list with these regions read anew; the others stay as they are.

    Raises RoundhouseError for a region that has no price of a SageMaker instance.
    """
    updated = {region: (read_region(client, region, today),) for region in regions}
    return PriceList(regions={**prices.regions, **updated})


def read_region(client: Client, region: str, today: date) -> PriceTable:
    """Return the present prices of one region. Raises RoundhouseError for one that is no price."""
    known = instance_types()
    try:
        purposes = {
            purpose: dict(
                sorted(row for row in _instance_prices(client, region, of) if row[0] in known)
            )
            for purpose, of in COMPONENTS.items()
        }
        if not purposes["hosting"]:
            raise RoundhouseError(
                f"The price list has no SageMaker hosting instance in region {region}; its prices "
                "stay as they were. Check the region's name."
            )
        codebuild = dict(sorted(_codebuild_prices(client, region)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RoundhouseError(
            f"The price list of region {region} has an entry that cannot be read "
            f"({type(error).__name__}: {error}); the prices stay as they were. Try again later."
        ) from error
    return PriceTable(date=today, source=SOURCE, codebuild=codebuild, **purposes)


def write_prices(path: Path, prices: PriceList) -> None:
    """Replace the price file by an atomic rename."""
    data = prices.model_dump(mode="json")
    replace_text(path, HEADER + yaml.safe_dump(data, sort_keys=False))


def _instance_prices(client: Client, region: str, component: str) -> Iterator[tuple[str, float]]:
    filters = {"regionCode": region, "component": component}
    for product in _products(client, SAGEMAKER, filters):
        name = product["product"]["attributes"].get("instanceName", "")
        for usd in _on_demand(product, ("Hrs", "Hours")):
            yield name, usd


def _codebuild_prices(client: Client, region: str) -> Iterator[tuple[str, float]]:
    for product in _products(client, CODEBUILD, {"regionCode": region}):
        usage = CODEBUILD_USAGE.search(product["product"]["attributes"].get("usagetype", ""))
        if usage is not None:
            for usd in _on_demand(product, ("Minutes", "minutes", "Build Minutes")):
                yield f"{CODEBUILD_SYSTEMS[usage['system']]}.{usage['size']}", usd


def _products(
    client: Client, service: str, fields: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()
    ]
    with calling(f"Price list of {service}"):
        found = pages(client, "get_products", "PriceList", ServiceCode=service, Filters=filters)
        for product in found:
            yield json.loads(product) if isinstance(product, str) else product


def _on_demand(product: Mapping[str, Any], units: Sequence[str]) -> Iterator[float]:
    """Yield the USD of each on-demand price in one of these units, without those that are free."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for price in term["priceDimensions"].values():
            usd = float(price["pricePerUnit"].get("USD", 0))
            if not math.isfinite(usd):
                raise ValueError(f"price {usd}")
            if price["unit"] in units and usd > 0:
                yield usd


def main() -> int:
    """Read the prices of the regions that are given, or of those of environments/."""
    parser = argparse.ArgumentParser(description="Write AWS's prices into onboarding/data.")
    parser.add_argument("regions", nargs="*", help="default: those of environments/")
    given = parser.parse_args().regions
    try:
        paths = current_paths(None)
        environments = () if given else valid_tree(paths).environments.values()
        regions = sorted({*given, *(item.region for item in environments if item.name != LOCAL)})
        today = datetime.now(UTC).date()
        found = with_updates(price_list(), aws_clients(API_REGION)("pricing"), regions, today)
        write_prices(paths.code / "onboarding" / "data" / PRICES_FILE, found)
    except RoundhouseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{PRICES_FILE}: {', '.join(regions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
