"""Prices as AWS's price list has them, by real botocore against a stand-in for its answers."""

from __future__ import annotations

import json
from datetime import date

import boto3
import pytest
from botocore.stub import Stubber

from onboarding.prices import PriceList, PriceTable, parse_prices, price_list
from roundhouse.dev.prices import read_region, with_updates, write_prices
from roundhouse.errors import RoundhouseError

TODAY = date(2026, 11, 22)


def product(attributes, usd, unit="Hrs"):
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"T": {"priceDimensions": {"D": dimension}}}}
    return json.dumps({"product": {"attributes": attributes}, "terms": terms})


def instance(name, usd):
    return product({"instanceName": name}, usd)


@pytest.fixture
def pricing():
    client = boto3.client(
        "pricing", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    with Stubber(client) as stub:

        def answer(service, region, pages, component=None):
            fields = {"regionCode": region, **({"component": component} if component else {})}
            filters = [
                {"Type": "TERM_MATCH", "Field": field, "Value": value}
                for field, value in fields.items()
            ]
            for number, products in enumerate(pages):
                last = number == len(pages) - 1
                expected = {"ServiceCode": service, "Filters": filters}
                if number:
                    expected["NextToken"] = str(number)
                stub.add_response(
                    "get_products",
                    {"PriceList": products, **({} if last else {"NextToken": str(number + 1)})},
                    expected,
                )

        yield client, answer
        stub.assert_no_pending_responses()


def test_region_is_read_over_all_pages(pricing):
    client, answer = pricing
    hosting = [[instance("ml.g5.xlarge", "1.5"), instance("ml.unknown.large", "9")],
               [instance("ml.g6.xlarge", "1.2"), instance("ml.g4dn.xlarge", "0.0")]]  # fmt: skip
    answer("AmazonSageMaker", "eu-west-1", hosting, "Hosting")
    answer("AmazonSageMaker", "eu-west-1", [[instance("ml.g5.xlarge", "1.6")]], "Training")
    minutes = [
        product({"usagetype": "EUW1-Build-Min:Linux:g1.large"}, "0.02", "Minutes"),
        product({"usagetype": "EUW1-Build-Min:Linux:g1.xlarge"}, "0.05", "Minutes"),
        product({"usagetype": "EUW1-Build-Min:LinuxGPU:g1.small"}, "0.03", "Minutes"),
        product({"usagetype": "EUW1-Build-Min:Windows:g1.large"}, "0.04", "Minutes"),
    ]
    answer("CodeBuild", "eu-west-1", [minutes])
    found = read_region(client, "eu-west-1", TODAY)
    assert found.hosting == {"ml.g5.xlarge": 1.5, "ml.g6.xlarge": 1.2}
    assert found.training == {"ml.g5.xlarge": 1.6}
    assert found.codebuild == {"linux.large": 0.02, "linux.xlarge": 0.05, "linux-gpu.small": 0.03}


def test_refuses_a_region_without_a_price_and_keeps_what_was(pricing):
    client, answer = pricing
    answer("AmazonSageMaker", "mars-north-1", [[]], "Hosting")
    answer("AmazonSageMaker", "mars-north-1", [[]], "Training")
    with pytest.raises(RoundhouseError, match="no SageMaker hosting instance in region mars"):
        with_updates(price_list(), client, ["mars-north-1"], TODAY)


@pytest.mark.parametrize("entry", [instance("ml.g5.xlarge", "free"), "{}", "no JSON"])
def test_refuses_an_entry_that_is_no_price(pricing, entry):
    client, answer = pricing
    answer("AmazonSageMaker", "eu-west-1", [[entry]], "Hosting")
    with pytest.raises(RoundhouseError, match=r"list of region eu-west-1 has an entry that cannot"):
        with_updates(price_list(), client, ["eu-west-1"], TODAY)


def test_written_file_reads_as_it_was(tmp_path):
    rows = PriceTable(date=TODAY, source="a", hosting={"ml.g5.xlarge": 1.5})
    prices = PriceList(regions={**price_list().regions, "eu-west-1": (rows,)})
    path = tmp_path / "prices.yaml"
    write_prices(path, prices)
    assert parse_prices(path.read_text()) == prices
    assert path.read_text().startswith("# USD an hour")
    assert [entry.name for entry in tmp_path.iterdir()] == ["prices.yaml"]
