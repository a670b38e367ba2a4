"""Coroutine tests run on an event loop of their own; the models of `bench` are closed there."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from tests.unit.container.data_plane.models import Bench


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(_run(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in names}))
    return True


async def _run(test: Any, arguments: dict[str, Any]) -> None:
    try:
        await asyncio.wait_for(test(**arguments), 60)
    finally:
        if "bench" in arguments:
            await arguments["bench"].models.close()
            arguments["bench"].log.close()
