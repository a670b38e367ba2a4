"""A price file that cannot be read is refused by line."""

from __future__ import annotations

import pytest

from onboarding.fault import FaultsError
from onboarding.prices import parse_prices, price_list

pytestmark = pytest.mark.unit

FILE = """\
regions:
  us-east-1:
    date: "2026-11-22"
    source: a list
    hosting:
      ml.g5.xlarge: 1.4084
"""


def test_shipped_prices_are_read():
    assert price_list().regions["us-east-1"].hosting["ml.g5.xlarge"] > 0


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (FILE.replace("1.4084", "about a dollar"), 6, "ml.g5.xlarge: Input should be a valid numb"),
        (FILE.replace("1.4084", "0"), 6, "ml.g5.xlarge: Input should be greater than 0"),
        (FILE.replace("1.4084", ".nan"), 6, "ml.g5.xlarge: Input should be"),
        (FILE.replace("    source: a list\n", ""), 2, "us-east-1.source: Field required"),
        (FILE + "    hostin: {}\n", 7, "us-east-1.hostin: Extra inputs are not permitted"),
        (FILE + "  - [", 7, "is no YAML"),
        ("", None, "Input should be a valid dictionary"),
    ],
)
def test_refuses_an_unreadable_price(text, line, what):
    with pytest.raises(FaultsError) as error:
        parse_prices(text)
    (fault,) = error.value.faults
    assert (fault.file, fault.line) == ("onboarding/data/prices.yaml", line)
    assert what in fault.what and "\n" not in str(fault)
    assert fault.way_out == "correct it, or restore the file from git"
