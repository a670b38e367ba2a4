"""wrk, the load generator: its script, its command, and what it measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.workload import Request, kserve
from roundhouse.processes import Command, Run

MARK = "ROUNDHOUSE "
SCRIPT = """\
-- Sends the requests of a file one after the other, counts statuses when
-- requested, and prints its measurements as JSON.
local requests, position, threads = {}, 0, {}
function setup(thread)
  thread:set("first", #threads)
  table.insert(threads, thread)
end
function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local size = file:read("*n")
  while size do
    file:read(1)
    table.insert(requests, file:read(size))
    size = file:read("*n")
  end
  file:close()
  position, counts = first * 97, {}
  if arguments[2] == "statuses" then
    response = function(status)
      local name = tostring(status)
      counts[name] = (counts[name] or 0) + 1
    end
  end
end
function request()
  position = position % #requests + 1
  return requests[position]
end
function statuses()
  local parts = {}
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("counts")) do
      table.insert(parts, string.format('[%s, %d]', status, count)) end
  end
  return table.concat(parts, ", ")
end
function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'ROUNDHOUSE {"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p90_ms": %.4f, ' ..
    '"p99_ms": %.4f, "max_ms": %.4f, ' ..
    '"refused": %d, "socket_errors": %d, "timeouts": %d, "statuses": [%s]}\\n', summary.requests,
    summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, errors.status,
    errors.connect + errors.read + errors.write, errors.timeout, statuses()))
end
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one run of wrk measured, with latencies as wrk corrects them."""

    requests: int
    seconds: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    refused: int
    """Responses of status 400 and above."""
    socket_errors: int
    timeouts: int
    statuses: Sequence[tuple[int, int]] = ()
    """(status, responses) of each thread, when they were counted."""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def clean(self) -> bool:
        """True when every request was answered with success."""
        return self.requests > 0 and self.refused + self.socket_errors + self.timeouts == 0


def requests_file(requests: Iterable[Request], path: Path) -> Path:
    """Write requests as the script reads them: a length, a newline, the bytes on the wire."""
    path.parent.mkdir(parents=True, exist_ok=True)
    wires = (request.wire() for request in requests)
    path.write_bytes(b"".join(b"%d\n%s" % (len(wire), wire) for wire in wires))
    return path


def sentence_requests(
    texts: Sequence[str], path: Path, protocol: Callable[[Sequence[str]], Request] = kserve
) -> Path:
    """Write a request for each text."""
    return requests_file((protocol([text]) for text in texts), path)


@dataclass(frozen=True, kw_only=True)
class Wrk:
    """The load generator as it is started: `cores` pins it (taskset's list)."""

    program: str
    script: Path
    run: Run
    threads: int = 1
    cores: str | None = None

    def load(
        self, file: Path, *, port: int, connections: int, seconds: float, statuses: bool = False
    ) -> Load:
        """Load a server on this machine. Raises ValueError when wrk prints no numbers."""
        command = self.command(file, port=port, connections=connections, seconds=seconds)
        if statuses:
            command = Command(argv=(*command.argv, "statuses"))
        return read_load(self.run(command).output, str(command))

    def command(self, file: Path, *, port: int, connections: int, seconds: float) -> Command:
        """Return the closed loop, keep-alive, at most one thread a connection."""
        pinned = () if self.cores is None else ("taskset", "-c", self.cores)
        threads, duration = min(self.threads, connections), f"{max(1, round(seconds))}s"
        shape = ("-t", str(threads), "-c", str(connections), "-d", duration, "--timeout", "30s")
        url = f"http://127.0.0.1:{port}/"
        argv = (self.program, *shape, "-s", str(self.script), url, "--", str(file))
        return Command(argv=(*pinned, *argv))


def wrk_program(
    folder: Path,
    run: Run,
    *,
    program: str | None = None,
    threads: int = 1,
    cores: str | None = None,
) -> Wrk:
    """Return wrk with its script written into a folder. Raises ValueError without the program."""
    path = shutil.which("wrk") if program is None else program
    if path is None:
        raise ValueError(
            "the load generator wrk is not installed; `apt-get install wrk`, then run the same "
            "command again."
        )
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "load.lua"
    script.write_text(SCRIPT, encoding="utf-8")
    return Wrk(program=path, script=script, run=run, threads=threads, cores=cores)


def read_load(output: str, command: str) -> Load:
    """Return the numbers in wrk's output. Raises ValueError when there are none."""
    lines = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise ValueError(f"`{command}` printed no numbers: {output.strip()[-300:]}")
    return Load(**json.loads(lines[0]))
