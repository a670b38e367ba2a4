"""wrk, the load generator: its script, its command, and what it measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.workload import Request
from roundhouse.processes import Command, Run

MARK = "ROUNDHOUSE "
SCRIPT = """\
-- Sends the requests of a file one after the other, and prints its measurements as JSON.
local requests, position = {}, 0
function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local size = file:read("*n")
  while size do
    file:read(1)
    table.insert(requests, file:read(size))
    size = file:read("*n")
  end
  file:close()
end
function request()
  position = position % #requests + 1
  return requests[position]
end
function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'ROUNDHOUSE {"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, ' ..
    '"refused": %d, "socket_errors": %d, "timeouts": %d}\\n', summary.requests,
    summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, errors.status,
    errors.connect + errors.read + errors.write, errors.timeout))
end
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one run of wrk measured, with latencies as wrk corrects them."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    refused: int
    """Responses of status 400 and above."""
    socket_errors: int
    timeouts: int

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


@dataclass(frozen=True, kw_only=True)
class Wrk:
    """The load generator as it is started."""

    program: str
    script: Path
    run: Run

    def load(self, file: Path, *, port: int, connections: int, seconds: float) -> Load:
        """Load a server on this machine: a closed loop, keep-alive, one thread.

        Raises ValueError when wrk prints no numbers.
        """
        duration = f"{max(1, round(seconds))}s"
        shape = ("-t", "1", "-c", str(connections), "-d", duration, "--timeout", "30s")
        url = f"http://127.0.0.1:{port}/"
        argv = (self.program, *shape, "-s", str(self.script), url, "--", str(file))
        command = Command(argv=argv)
        return read_load(self.run(command).output, str(command))


def wrk_program(folder: Path, run: Run, *, program: str | None = None) -> Wrk:
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
    return Wrk(program=path, script=script, run=run)


def read_load(output: str, command: str) -> Load:
    """Return the numbers in wrk's output. Raises ValueError when there are none."""
    lines = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise ValueError(f"`{command}` printed no numbers: {output.strip()[-300:]}")
    return Load(**json.loads(lines[0]))
