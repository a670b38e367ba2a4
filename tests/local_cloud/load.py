"""Steady load on an endpoint: everything that was answered, and everything that was not."""

import contextlib
import threading
import time
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError

from tests.local_cloud.account import until

CALLERS = 3
PAUSE_SECONDS = 0.02
"""Between two requests of a caller: without, they take what the update that is tested needs."""


@dataclass
class Load:
    """What the callers got so far, in order."""

    answers: list[dict] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    _answers_since: float = 0.0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def forget_answers(self):
        """Begins anew: what was asked before, and is answered only now, does not count either."""
        with self._turn:
            self._answers_since = time.monotonic()
            self.answers.clear()

    def ask(self, invoke):
        """One request, and what comes of it."""
        begun = time.monotonic()
        try:
            answer = invoke()
        except (ClientError, BotoCoreError) as error:
            with self._turn:
                self.failures.append(error)
            return
        with self._turn:
            if begun >= self._answers_since:
                self.answers.append(answer)

    def until_answered(self, greeting):
        """Waits for an answer with a greeting."""
        until(lambda: any(answer["greeting"] == greeting for answer in list(self.answers)))

    def greetings(self):
        return {answer["greeting"] for answer in self.answers}


@contextlib.contextmanager
def steady_load(cloud, endpoint, *, pause_seconds=PAUSE_SECONDS, **options):
    """Asks an endpoint again and again from a few threads, until the block ends."""
    load, done = Load(), threading.Event()

    def ask():
        while not done.wait(pause_seconds):
            load.ask(lambda: cloud.invoke(endpoint, **options))

    callers = [threading.Thread(target=ask) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        until(lambda: load.answers or load.failures or None)
        yield load
    finally:
        done.set()
        for caller in callers:
            caller.join()
