"""How much text is tokenized at once in a process: a tokenizer takes about forty bytes of memory
for each character of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

CHARACTERS_AT_ONCE = 1_000_000

Result = TypeVar("Result")


class EncodingBudget:
    """Runs what encodes texts in threads, as many characters at once as fit, first come first
    served; more than all go alone.

    Every method is called on one event loop.
    """

    def __init__(self, characters: int = CHARACTERS_AT_ONCE) -> None:
        self._characters = characters
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def run(self, characters: int, encode: Callable[[], Result]) -> Result:
        """What `encode` returns or raises.

        Who is cancelled gives its characters back when its thread has ended, not before.
        """
        await self._turn(characters)
        work = asyncio.get_running_loop().run_in_executor(None, encode)
        work.add_done_callback(lambda ended: self._over(characters, ended))
        return await asyncio.shield(work)

    async def _turn(self, characters: int) -> None:
        if not self._waiting and self._fits(characters):
            self._taken += characters
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((characters, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if (
                turn.done() and not turn.cancelled()
            ):  # the turn came in the moment of the cancellation
                self._taken -= characters
            else:
                self._waiting.remove((characters, turn))
            self._let_in()
            raise

    def _fits(self, characters: int) -> bool:
        return not self._taken or self._taken + characters <= self._characters

    def _over(self, characters: int, ended: asyncio.Future[Result]) -> None:
        if not ended.cancelled():
            ended.exception()  # nobody may be left to hear of it
        self._taken -= characters
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            characters, turn = self._waiting.popleft()
            self._taken += characters
            turn.set_result(None)


SHARED = EncodingBudget()
"""Of all models of a process: they share its memory."""
