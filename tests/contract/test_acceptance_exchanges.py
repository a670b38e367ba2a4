"""The exchanges of an acceptance run are exchanges of this suite: same bytes, same statuses."""

from __future__ import annotations

import json

import pytest

from roundhouse.acceptance.exchanges import exchanges
from tests.contract.exchanges import ANSWERS, SLIPS

pytestmark = pytest.mark.contract

KINDS = {"python": "python-server", "triton": "triton-sme"}
SUITE = {exchange.name: exchange for exchange in (*ANSWERS, *SLIPS)}


@pytest.mark.parametrize("exchange", exchanges(), ids=lambda exchange: exchange.name)
def test_exchange_is_one_of_the_suite(exchange):
    known = SUITE[exchange.name]
    statuses = {server: known.replies[kind].status for server, kind in KINDS.items()}
    assert exchange.statuses == statuses
    assert exchange.content_type.partition(";")[0] == known.content_type.partition(";")[0]
    if "binary" in exchange.name or "UTF-8" in exchange.name:
        # The suite asks for a binary answer beside.
        assert exchange.body.endswith(known.body[known.body.rindex(b"}") + 1 :])
    elif exchange.body.startswith(b"{") and len(exchange.body) > 2:
        assert json.loads(exchange.body) == json.loads(known.body)
    else:
        assert exchange.body == known.body
