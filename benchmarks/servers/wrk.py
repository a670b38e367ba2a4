"""wrk, the load generator: its script, its command, and what it measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.workload import Request
from roundhouse.processes import Command, Run

MARK = "ROUNDHOUSE "
SCRIPT = """\
-- Sends the requests of a file one after the other, counts statuses when
-- requested, and prints its measurements as JSON.
local asked, place, threads = {}, 0, {}
function setup(thread)
  thread:set("first", #threads)
  table.insert(threads, thread)
end
function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local size = file:read("*n")
  while size do
    file:read(1)
    table.insert(asked, file:read(size))
    size = file:read("*n")
  end
  file:close()
  place, counts = first * 97, {}
  if arguments[2] == "statuses" then
    response = function(status)
      local name = tostring(status)
      counts[name] = (counts[name] or 0) + 1
    end
  end
end
function request()
  place = place % #asked + 1
  return asked[place]
end
function statuses()
  local parts = {}
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("counts")) do
      table.insert(parts, string.format('[%s, %d]', status, count)) end
  end
  return table.concat(parts, ", ")
end
function done(summary, latency, requests)
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
    """What one run of wrk measured; `refused` counts answers of status 400 and above.

    Latencies as wrk corrects them.
    """

    requests: int
    seconds: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    refused: int
    socket_errors: int
    timeouts: int
    statuses: Sequence[tuple[int, int]] = ()
    """(status, answers) of each thread, when they were counted."""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def clean(self) -> bool:
        """True when every request got the answer it asked for."""
        return self.requests > 0 and self.refused + self.socket_errors + self.timeouts == 0


def requests_file(request: Sequence[Request], path: Path) -> Path:
    """Writes requests the way the script reads them: a length, a newline, the bytes on the wire."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(b"%d\n%s" % (len(wire), wire) for wire in (one.wire() for one in request))
    )
    return path


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
        """Loads a server on this machine.

        Raises ValueError when wrk says nothing that can be read.
        """
        command = self.command(
            file, port=port, connections=connections, seconds=seconds, statuses=statuses
        )
        outcome = self.run(command)
        return read_load(outcome.output, str(command))

    def command(
        self, file: Path, *, port: int, connections: int, seconds: float, statuses: bool = False
    ) -> Command:
        """Closed loop, keep-alive, at most one thread a connection."""
        pinned = () if self.cores is None else ("taskset", "-c", self.cores)
        threads = min(self.threads, connections)
        shape = (
            "-t",
            str(threads),
            "-c",
            str(connections),
            "-d",
            f"{max(1, round(seconds))}s",
            "--timeout",
            "30s",
        )
        text = ("--", str(file), *(("statuses",) if statuses else ()))
        return Command(
            argv=(
                *pinned,
                self.program,
                *shape,
                "-s",
                str(self.script),
                f"http://127.0.0.1:{port}/",
                *text,
            )
        )


def wrk_program(
    folder: Path,
    run: Run,
    *,
    program: str | None = None,
    threads: int = 1,
    cores: str | None = None,
) -> Wrk:
    """Wrk with its script written into a folder. Raises ValueError when it is not installed."""
    found = shutil.which("wrk") if program is None else program
    if found is None:
        raise ValueError(
            "the load generator wrk is not installed; `apt-get install wrk`, then run the same "
            "command again."
        )
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "load.lua"
    script.write_text(SCRIPT, encoding="utf-8")
    return Wrk(program=found, script=script, run=run, threads=threads, cores=cores)


def read_load(output: str, command: str) -> Load:
    """The numbers in wrk's output. Raises ValueError when there are none."""
    lines = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise ValueError(f"`{command}` told no numbers: {output.strip()[-300:]}")
    return Load(**json.loads(lines[0]))
