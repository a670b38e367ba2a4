"""Steady load on an endpoint: everything that was answered, and everything that was not."""

import contextlib
import threading
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError

from tests.local_cloud.account import until

CALLERS = 3


@dataclass
class Load:
    """What the callers got so far, in order."""

    answers: list[dict] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def until_answered(self, greeting):
        """Waits for an answer with a greeting."""
        until(lambda: True if any(answer["greeting"] == greeting for answer in list(self.answers)) else None)

    def greetings(self):
        return {answer["greeting"] for answer in self.answers}


@contextlib.contextmanager
def steady_load(cloud, endpoint, **options):
    """Asks an endpoint again and again from a few threads, until the block ends."""
    load, done = Load(), threading.Event()

    def ask():
        while not done.is_set():
            try:
                load.answers.append(cloud.invoke(endpoint, **options))
            except (ClientError, BotoCoreError) as error:
                load.failures.append(error)

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
