"""What the server before vLLM refuses, admits and costs: hostile requests, overload, streams."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from aiohttp import ClientSession

from benchmarks.context import Context
from benchmarks.generation_front.cost import cost_measures
from benchmarks.generation_front.hostile_requests import HostileRequest, hostile_requests
from benchmarks.generation_front.process import (
    PYTHON,
    FrontProcess,
    NotReady,
    completion,
    front_process,
    read_stream,
)
from benchmarks.measure import Bar, Measure, at_most, of_rounds, with_command
from roundhouse.processes import Command

HOSTILE, THROWERS, INNOCENTS, SEED = 10_000, 12, 2, 1
KNEE, OVERLOAD, LOAD_SECONDS, TOKENS = 8, 3, 20.0, 32
ROUNDS, STREAM_TOKENS, COST_ROUNDS = 5, 400, 3
DONE = b"data: [DONE]\n\n"
NONE = Bar(kind="exactly", limit=0)
COMMAND = "make bench BENCH=generation_front: tiny Llama, vLLM and clients on the same cores"
ENGINE_PORT = re.compile(r"for the engine on port (\d+)")


def generation_front(context: Context) -> list[Measure]:
    """Measure the front before vLLM. Raises ValueError where vLLM cannot be started."""
    if not PYTHON.exists():
        raise ValueError(f"{PYTHON.parents[1]} is missing; `make environments-chat` makes it")
    folder = context.folder("generation_front")
    checkpoint, log = folder / "llama", folder / "log"
    writer = (sys.executable, "-m", "tests.text_generation.tiny_llama", str(checkpoint))
    written = context.run(Command(argv=writer, folder=context.paths.code))
    if written.code != 0:
        raise ValueError(f"the checkpoint was not written: {written.last_lines()}")
    try:
        measures = _measure_hostile(checkpoint, log)
        settings = {"SM_VLLM_MAX_NUM_QUEUED_REQS": str(KNEE)}
        with front_process(checkpoint, log, **settings) as front:
            measures += asyncio.run(_measure_overload(front))
            measures += asyncio.run(_measure_stream(front, context.rounds(ROUNDS)))
        measures += cost_measures(folder, context.rounds(COST_ROUNDS))
    except NotReady as fault:
        raise ValueError(f"vLLM did not start: {fault}") from fault
    return with_command(COMMAND, measures)


@dataclass
class _Innocents:
    """Clients that stream the right request all the time, and what they got."""

    right: bytes
    whole: int = 0
    refused: int = 0
    harmed: list[str] = field(default_factory=list)

    async def run(self, session: ClientSession, stop: asyncio.Event) -> None:
        while not stop.is_set():
            answer = await read_stream(session, completion("the cat", tokens=24))
            if answer.status == 503:
                self.refused += 1
            elif answer.status == 200 and _texts(answer.body) == self.right:
                self.whole += 1
            else:
                self.harmed.append(f"{answer.status} {answer.body[-200:]!r}")


def _texts(body: bytes) -> bytes:
    """Return the texts of a whole stream; nothing of another."""
    if not body.endswith(DONE):
        return b""
    events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n")[:-2]]
    return "".join(json.loads(event)["choices"][0]["text"] for event in events).encode()


def _measure_hostile(checkpoint: Path, log: Path) -> list[Measure]:
    with front_process(checkpoint, log) as front:
        return asyncio.run(_throw(front))


async def _throw(front: FrontProcess) -> list[Measure]:
    async with front.session() as session:
        right = await read_stream(session, completion("the cat", tokens=24))
        innocents, stop = _Innocents(right=_texts(right.body)), asyncio.Event()
        beside = [asyncio.create_task(innocents.run(session, stop)) for _ in range(INNOCENTS)]
        limit, statuses, wrong = asyncio.Semaphore(THROWERS), Counter[int](), list[str]()

        async def throw(request: HostileRequest) -> None:
            async with limit:
                status, text = await _status(session, request)
            statuses[status] += 1
            if status >= 500 and status != 503:
                wrong.append(f"{request} -> {status} {text[:300]!r}")

        begin = time.monotonic()
        await asyncio.gather(*map(throw, hostile_requests(HOSTILE, SEED)))
        seconds = time.monotonic() - begin
        stop.set()
        await asyncio.gather(*beside)
        for sentence in (*wrong[:20], *innocents.harmed[:5]):
            print(sentence, flush=True)
        print(f"statuses {dict(sorted(statuses.items()))}", flush=True)
        alive = front.process.poll() is None and front.ask("/ping")[0] == 200
        return [
            Measure("hostile requests", HOSTILE, ""),
            Measure("hostile requests a second", HOSTILE / seconds, "1/s"),
            Measure("answers that are neither 2xx, 4xx nor 503", len(wrong), "", NONE),
            Measure("front or engine ended", 0 if alive else 1, "", NONE),
            Measure("innocent streams whole", innocents.whole, ""),
            Measure("innocent streams refused with 503", innocents.refused, ""),
            Measure("innocent streams cut or changed", len(innocents.harmed), "", NONE),
        ]


async def _status(session: ClientSession, request: HostileRequest) -> tuple[int, bytes]:
    """Return status and body of an answer; 599 where there is none."""
    try:
        async with session.request(
            request.method, request.path, data=BytesIO(request.body), headers=request.headers
        ) as answer:
            return answer.status, await answer.read()
    except (OSError, TimeoutError) as fault:
        return 599, repr(fault).encode()


async def _measure_overload(front: FrontProcess) -> list[Measure]:
    """Load the front at the knee and beyond; refused clients come back after a pause."""
    alone, _ = await _load(front, KNEE)
    beyond, refusals = await _load(front, OVERLOAD * KNEE)
    before, after = _percentile(alone), _percentile(beyond)
    slow = sum(seconds > 0.05 for seconds in refusals)
    return [
        Measure(f"p95 TTFT, {KNEE} clients", before * 1000, "ms"),
        Measure(f"p95 TTFT of the admitted, {OVERLOAD * KNEE} clients", after * 1000, "ms"),
        Measure("p95 TTFT at the overload / at the knee", after / before, "x", at_most(1.3)),
        Measure("refused", len(refusals), ""),
        Measure("p50 of a 503", _percentile(refusals, 0.5) * 1000, "ms"),
        Measure("p99 of a 503", _percentile(refusals, 0.99) * 1000, "ms", at_most(50)),
        Measure("503 later than 50 ms", slow / len(refusals), "share"),
    ]


async def _load(front: FrontProcess, clients: int) -> tuple[list[float], list[float]]:
    """Return seconds to the first event of the admitted, and to the answer of the refused."""
    admitted, refused, end = list[float](), list[float](), time.monotonic() + LOAD_SECONDS

    async def client(session: ClientSession, number: int) -> None:
        count = 0
        while time.monotonic() < end:
            count += 1
            answer = await read_stream(session, completion(f"{number} {count} cats", TOKENS))
            (refused if answer.status == 503 else admitted).append(answer.first_seconds)
            if answer.status == 503:
                await asyncio.sleep(1)

    async with front.session() as session:
        await asyncio.gather(*(client(session, number) for number in range(clients)))
    return admitted, refused


async def _measure_stream(front: FrontProcess, rounds: int) -> list[Measure]:
    """Compare one stream through the front with one of the engine's own port."""
    found = ENGINE_PORT.findall(front.log.read_text(encoding="utf-8", errors="replace"))
    engine = FrontProcess(front.process, int(found[-1]), front.log)
    first, token = list[float](), list[float]()
    async with front.session() as through, engine.session() as bare:
        for number in range(rounds):
            document = completion(f"round {number}", STREAM_TOKENS, model="chat")
            seconds = []
            for session in (bare, through):
                begin = time.monotonic()
                answer = await read_stream(session, document)
                total = time.monotonic() - begin
                rest = (total - answer.first_seconds) / STREAM_TOKENS
                seconds.append((answer.first_seconds, rest))
            (bare_first, bare_rest), (own_first, own_rest) = seconds
            first.append((own_first - bare_first) * 1e3)
            token.append((own_rest - bare_rest) * 1e6)
    return [
        of_rounds("one stream: first token, behind the front - bare", first, "ms"),
        of_rounds("one stream: a token, behind the front - bare", token, "us"),
    ]


def _percentile(values: list[float], share: float = 0.95) -> float:
    if len(values) < 2:
        raise ValueError("too few answers to compare; is the machine idle?")
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]
