"""Models on a bench, given back when the test is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.unit.container.data_plane.models import Bench


@pytest.fixture
def tried(tmp_path):
    def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> Bench:
        bench = Bench(tmp_path)

        async def whole() -> None:
            try:
                await asyncio.wait_for(test(bench), 30)
            finally:
                await bench.models.close()
                bench.log.close()

        asyncio.run(whole())
        return bench

    return run
