"""What users of one engine see who each ask again once they are answered, step by step.

vLLM 0.26 schedules a step while the one before runs: the tokens of every running request, and of
waiting prompts as many as max_num_batched_tokens leave (vllm/v1/core/sched/scheduler.py). So a
prompt delays the next token of all others, which is what a 95th percentile is made of. A step's
answers are read once its successor is launched (step_with_batch_queue of vllm/v1/engine/core.py).
Tokens that its HTTP process has not sent yet leave in one chunk (RequestOutputCollector).
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from onboarding.text_generation.lengths import LogNormal, draw_lengths

ANSWERS, WAVES = 500, 4
"""Answers that are counted at least, and of each user."""
PERCENT = 0.95
BUSY_POWER = 3
"""Of the share of the time that the server's thread is busy: so much a request waits for it."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """The engine's HTTP process, whose one thread reads requests and sends chunks; seconds."""

    request: float
    """Of a request in that thread."""
    latency: float
    """Of a request before it waits for a step, beside that."""
    chunk: float
    """Of a chunk in that thread."""
    turns: float
    """How often a request waits for the thread, each time for a chunk of every running request."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One copy."""

    step_seconds: Callable[[int, int, int], float]
    """Of a step on the GPU, by its prompt tokens, the requests that it answers and their cached
    tokens."""
    launch_seconds: Callable[[int, int], float]
    """Of the CPU that launches a step, by its prompt tokens and the requests that it answers."""
    is_one_process: bool
    """True where one process schedules and launches, which it does for a copy on one GPU."""
    step_tokens: int
    """Most tokens of a step."""
    server: Server


@dataclass(frozen=True, kw_only=True)
class Experience:
    """What users see: seconds to a first token, and between chunks; tokens a second of all."""

    ttft_p95: float
    itl_p95: float
    itl_mean: float
    tokens_per_second: float


@dataclass(slots=True)
class _Request:
    due: float
    prompt: int
    output: int
    unread: int


@dataclass(slots=True)
class _Step:
    """What a step answers: the next token of `count` requests, and the first one of `first`."""

    count: int = 0
    first: Sequence[_Request] = ()
    last: Sequence[_Request] = ()
    """The requests that have their last token."""


@dataclass(kw_only=True)
class _Loop:
    """One run; the counted part begins once every user was answered once."""

    engine: Engine
    lengths: Iterator[tuple[int, int]]
    now: float = 0.0
    """When the next step is scheduled: what has arrived is in it."""
    gpu: float = 0.0
    """When the GPU has done the steps so far."""
    launched: float = 0.0
    """When the CPU has launched them."""
    latest: _Step = field(default_factory=_Step)
    """The step that runs, whose answers are read once the next one is launched."""
    read: float = 0.0
    """When answers were read last."""
    turn: float = 0.0
    """Seconds that a request waits for the server's thread at a time."""
    busy_until: float = 0.0
    """When the server's thread has done what there is."""
    chunks_begin: float = -math.inf
    """When it begins to send the last chunks."""
    sent: float = 0.0
    """When it has sent them."""
    step: int = 0
    cached: int = 0
    answered: int = 0
    tokens: int = 0
    arrivals: deque[tuple[float, _Request]] = field(default_factory=deque)
    waiting: deque[_Request] = field(default_factory=deque)
    running: list[tuple[int, int, _Request]] = field(default_factory=list)
    """A heap by the step of the last token."""
    order: Iterator[int] = field(default_factory=itertools.count)
    ttfts: list[float] = field(default_factory=list)
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """Seconds between two chunks, and how many chunks came so."""

    def begin(self, due: float) -> None:
        """Let a user send a first request, to a server that is idle then."""
        self._send_request(due, due + self.engine.server.request)

    def ask(self, due: float) -> None:
        """Let a user send a request; none is due before another that was sent earlier."""
        self.busy_until = max(self.busy_until, due) + self.engine.server.request
        self._send_request(due, self.busy_until)

    def _send_request(self, due: float, read: float) -> None:
        prompt, output = next(self.lengths)
        server = self.engine.server
        moment = read + server.latency + server.turns * self.turn
        self.arrivals.append((moment, _Request(due, prompt, output, prompt)))

    def advance(self) -> None:
        """Run one step, or as many alike as there are until something changes."""
        if not self.running and not self.waiting:
            self._read_answers(self.gpu)
            self.latest = _Step()
            self.now = max(self.now, self.gpu, self.arrivals[0][0])
        while self.arrivals and self.arrivals[0][0] <= self.now:
            self.waiting.append(self.arrivals.popleft()[1])
        if self.waiting:
            self._read_prompts()
        else:
            self._answer()

    def _read_prompts(self) -> None:
        count = len(self.running)
        left, tokens, ready = self.engine.step_tokens - count, 0, []
        while self.waiting and tokens < left:
            request = self.waiting[0]
            part = min(request.unread, left - tokens)
            request.unread -= part
            tokens += part
            if request.unread:
                break
            ready.append(self.waiting.popleft())
        seconds = self.engine.step_seconds(tokens, count, self.cached)
        self._launch(seconds, self.engine.launch_seconds(tokens, count), count, ready)
        self.cached += tokens
        for request in ready:
            last = self.step + request.output - 1
            heapq.heappush(self.running, (last, next(self.order), request))
        self._end()

    def _answer(self) -> None:
        count = len(self.running)
        seconds = self.engine.step_seconds(0, count, self.cached)
        launch = self.engine.launch_seconds(0, count)
        self._launch(seconds, launch, count)
        steps = self.running[0][0] - self.step if launch < seconds else 0
        if self.arrivals:
            wait = max(0.0, self.arrivals[0][0] - self.now)
            steps = min(steps, math.ceil(wait / seconds))
        if steps:
            seconds = self.engine.step_seconds(0, count, self.cached + count * steps // 2)
            self.gpu += steps * seconds
            self.now = self.gpu - seconds
            self._read_answers(self.now, steps)
            self._pass(steps, count)
        self._end()

    def _launch(
        self, seconds: float, launch: float, count: int, first: Sequence[_Request] = ()
    ) -> None:
        """Launch a step, and read the answers of the one before."""
        self.launched = max(self.now, self.launched) + launch
        before, self.gpu = self.gpu, max(self.now, self.gpu) + seconds
        self.gpu = max(self.gpu, self.launched)
        self.now = max(self.now, before, self.launched if self.engine.is_one_process else 0.0)
        self._read_answers(self.now)
        self.latest = _Step(count, first)
        self._pass(1, count, len(first))

    def _pass(self, steps: int, count: int, first: int = 0) -> None:
        self.step += steps
        self.cached += steps * count
        self.tokens += steps * count + first

    def _end(self) -> None:
        last = []
        while self.running and self.running[0][0] == self.step:
            request = heapq.heappop(self.running)[2]
            self.cached -= request.prompt + request.output - 1
            last.append(request)
        self.latest.last = last

    def _read_answers(self, moment: float, steps: int = 1) -> None:
        """Send the answers of the last step, or of so many alike that ended at equal intervals."""
        step, server = self.latest, self.engine.server
        work = step.count * server.chunk
        span, self.read = (moment - self.read) / steps, moment
        self.turn = work * min(1.0, work / max(span, 1e-9)) ** BUSY_POWER
        if moment <= self.chunks_begin:
            self._send(len(step.first))
        elif step.count or step.first:
            before = self.sent
            self.chunks_begin = self.sent = max(moment, self.busy_until)
            self._send(step.count + len(step.first))
            if step.count:
                passed = self.sent - before
                gap = max(passed / steps, work)
                self.gaps.append((gap, step.count * passed / gap))
        for request in step.first:
            self.ttfts.append(self.sent - request.due)
        for _ in step.last:
            self.answered += 1
            self.ask(self.sent)

    def _send(self, chunks: int) -> None:
        work = chunks * self.engine.server.chunk
        self.sent += work
        self.busy_until = max(self.busy_until, self.sent - work) + work


def simulate(
    engine: Engine, prompt: LogNormal, output: LogNormal, most: int, users: int
) -> Experience:
    """Return what so many users see; requests have at most `most` tokens.

    They begin one after the other, so that answers of one length do not stay in step.
    """
    loop = _Loop(engine=engine, lengths=draw_lengths(prompt, output, most, random.Random(1)))
    step = engine.step_seconds(0, users, round(users * prompt.mean))
    for number in range(users):
        loop.begin(number * output.mean * step / users)
    while loop.answered < users:
        loop.advance()
    begin, before, loop.tokens = loop.sent, loop.answered, 0
    loop.ttfts.clear()
    loop.gaps.clear()
    while loop.answered - before < max(ANSWERS, WAVES * users):
        loop.advance()
    chunks = sum(count for _, count in loop.gaps)
    return Experience(
        ttft_p95=_percentile([(seconds, 1) for seconds in loop.ttfts]),
        itl_p95=_percentile(loop.gaps),
        itl_mean=sum(seconds * count for seconds, count in loop.gaps) / max(chunks, 1),
        tokens_per_second=loop.tokens / (loop.sent - begin),
    )


def _percentile(values: list[tuple[float, float]]) -> float:
    """Return the 95th percentile of weighted values; 0 of none."""
    needed = PERCENT * sum(weight for _, weight in values)
    found = 0.0
    for value, weight in sorted(values):
        found = value
        needed -= weight
        if needed <= 0:
            break
    return found
