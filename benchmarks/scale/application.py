"""`python app.py` as the cdk command line runs it, measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Usage, measure_usage
from roundhouse import settings
from roundhouse.paths import Paths
from roundhouse.processes import Command, Processes


@dataclass(frozen=True, kw_only=True)
class Application:
    """app.py of this repository, writing into `place`."""

    at: Paths
    run: Processes
    variables: Mapping[str, str]
    place: Path

    def synthesised(self, tree: Path, *, environment: str, endpoint: str | None = None) -> Usage:
        """One run into an empty folder, the CDK's built-in validation off.

        Raises ValueError when it fails.
        """
        out = self.place / "out"
        shutil.rmtree(out, ignore_errors=True)
        taken = measure_usage(
            self.command(tree, out, environment=environment, endpoint=endpoint),
            self.place / "taken.json",
            self.run,
        )
        if taken.code != 0:
            raise ValueError(f"app.py ended with {taken.code} on {tree}")
        return taken

    def command(self, tree: Path, out: Path, *, environment: str, endpoint: str | None) -> Command:
        """The command, with what the command line would hand over."""
        request = {
            "env": environment,
            "root": str(tree),
            **({} if endpoint is None else {"endpoint": endpoint}),
        }
        context = {
            **json.loads((self.at.code / "cdk.json").read_text(encoding="utf-8"))["context"],
            **request,
        }
        given = {
            **self.variables,
            "CDK_OUTDIR": str(out),
            "CDK_CONTEXT_JSON": json.dumps(context),
            "CDK_VALIDATION": "false",
        }
        argv = (str(self.at.venv_python("roundhouse")), "app.py")
        return Command(
            argv=argv, folder=self.at.code, environment=settings.child_environment(given)
        )
