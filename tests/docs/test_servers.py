"""The page of the servers shows what the contract suite asks, and nothing older."""

import pytest

from tests.contract import differences
from tests.contract.exchanges import ANSWERS, TABLES
from tests.contract.replies import KINDS, TITLES

pytestmark = pytest.mark.docs


def test_document_shows_the_present_differences():
    document = differences.DOCUMENT.read_text(encoding="utf-8")
    assert document == differences.fill_in(document), (
        "run: python -m tests.contract.differences --write"
    )


def test_table_has_a_row_for_what_differs_and_none_for_what_does_not():
    lines = list(differences.table("Answered", ANSWERS, KINDS))
    assert f"| Answered | {' | '.join(TITLES[kind] for kind in KINDS)} |" in lines
    assert "| more rows than the batch | 200 | 400 | 400 |" in lines
    assert not [line for line in lines if "texts in JSON" in line]


def test_names_of_exchanges_are_unique():
    names = [exchange.name for _, exchanges, _ in TABLES for exchange in exchanges]
    assert len(names) == len(set(names))


def test_refuses_a_document_without_its_markers():
    with pytest.raises(ValueError, match="lacks the markers <!-- differences: generated -->"):
        differences.fill_in("# Servers\n")
