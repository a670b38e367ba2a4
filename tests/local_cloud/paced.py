"""A load of so many requests a second, from threads that keep time."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

CALLERS = 8


@contextlib.contextmanager
def paced_load(ask, rate):
    """Asks `rate` times a second until the block ends.

    Gives the list of what was answered, in order.
    """
    answers, done = [], threading.Event()

    def keep_asking():
        with ThreadPoolExecutor(CALLERS) as callers:
            start, count = time.monotonic(), 0
            while not done.wait(0.01):
                due = int((time.monotonic() - start) * rate)
                for _ in range(due - count):
                    callers.submit(lambda: answers.append(ask()))
                count = due

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        yield answers
    finally:
        done.set()
        thread.join()
