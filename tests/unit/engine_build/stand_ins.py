"""Stand-ins for what a build is given: processes, stores, time."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from engine_build.__main__ import main
from engine_build.log import Log
from engine_build.options import Options
from engine_build.request import BuildContext, BuildRequest, build_request
from engine_build.runner import Command, Ended
from engine_build.store import FolderStore, Store
from engine_build.workload import Settings, WorkFolder

ROOT = Path(__file__).parents[3]
PASSED = json.dumps({"version": "1.7", "verdict": "pass", "seconds": 0.1, "faults": []})


class StandInRunner:
    """Answers the commands of a build without starting one."""

    def __init__(
        self,
        wheel: Path | None = None,
        *,
        check: Ended | None = None,
    ) -> None:
        self.commands: list[Command] = []
        self._wheel = wheel
        self._check = Ended(code=0, output=PASSED, errors="") if check is None else check

    def find(self, program: str) -> str | None:
        """No program is there."""
        return None

    def run(self, command: Command) -> Ended:
        """pip, the compile check, the loading."""
        self.commands.append(command)
        module = command.argv[2]
        if module == "pip":
            return self._download(Path(command.argv[command.argv.index("-d") + 1]))
        if module == "engine_build.onnx_graph.rtx":
            return self._check
        assert module == "engine_build.evaluation.footprint"
        footprint = {"load_seconds": 0.1, "host_memory_mib": 5.0}
        return Ended(code=0, output=json.dumps(footprint), errors="")

    def ran(self, module: str) -> int:
        """How often a module was asked for."""
        return sum(module in command.argv for command in self.commands)

    def _download(self, folder: Path) -> Ended:
        if self._wheel is None:
            reason = "ERROR: No matching distribution found for tiny-embedder==1.0"
            return Ended(code=1, output="", errors=reason)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._wheel, folder)
        return Ended(code=0, output="", errors="")


class BreakingStore(FolderStore):
    """A folder store that breaks before the write of a name that the test picks."""

    def __init__(
        self, folder: Path, breaks_at: Callable[[str], bool], error: BaseException
    ) -> None:
        super().__init__(folder)
        self._breaks_at = breaks_at
        self._error = error

    def upload(self, path: Path, name: str, *, only_if_absent: bool = False) -> bool:
        """Raises instead of writing."""
        if self._breaks_at(name):
            raise self._error
        return super().upload(path, name, only_if_absent=only_if_absent)


def request_of(
    root: Path, model: str = "tiny", log: Log | None = None, **changes: Any
) -> BuildRequest:
    """The request of a model of a tree; `changes` are options."""
    options = Options(root=root, environment="desk", model=model, out=root / "out", **changes)
    return build_request(options, Log(io.StringIO()) if log is None else log)


def run_command(
    root: Path,
    *more: object,
    environment: str = "desk",
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> tuple[int, TextIO, TextIO]:
    """Exit code and the two streams of the whole command in this process, its result in JSON."""
    out, err = (io.StringIO() if stream is None else stream for stream in (stdout, stderr))
    options = ["--root", root, "--environment", environment, "--model", "tiny", "--format", "json"]
    arguments = map(str, (*options, "--out", root / "out", *more))
    return main(list(arguments), {"ROUNDHOUSE_BENCHMARK_SECONDS": "0.02"}, out, err), out, err


def context(
    root: Path,
    out: Path,
    *,
    store: Store | None,
    runner: StandInRunner,
    model: str = "tiny",
    candidate: str | None = None,
) -> BuildContext:
    """A build's tools, its work folder not yet entered."""
    log = Log(io.StringIO())
    return BuildContext(
        request=request_of(root, model, log),
        settings=Settings(source_commit="abc", image="image@sha256:1", benchmark_seconds=0.05),
        log=log,
        runner=runner,
        work=WorkFolder(out),
        publish_to=store,
        candidate=candidate,
        code_root=ROOT,
        now=lambda: "2026-01-01T00:00:00+00:00",
    )
