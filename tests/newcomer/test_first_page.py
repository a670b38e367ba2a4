"""The first page of the docs, line by line: a wheel, an empty folder and home, registries."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.newcomer

ROOT = Path(__file__).resolve().parents[2]
UV = ROOT / ".venvs" / "uv" / "bin" / "uv"
PAGE, END = ROOT / "docs" / "onboarding.md", "## A new account"
BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)
LAST_LINE = "app.synth()\n"
STEPS, SECONDS = 12, 15 * 60
REGISTRIES = ("npm_config_", "NODE_EXTRA", "UV_", "PIP_", "HTTP", "NO_PROXY", "SSL", "REQUESTS_")
"""Beginnings of the variables by which a machine reaches PyPI and npm, or keeps what it got."""


def page_steps() -> list[str]:
    """Return each line of the shell; what goes into app.py is one step, and begins as Python."""
    page = PAGE.read_text(encoding="utf-8").partition(END)[0]
    steps: list[str] = []
    for language, text in BLOCK.findall(page):
        steps += [text] if language == "python" else text.splitlines()
    return steps


class Newcomer:
    """Types one step after the other in a shell, whose folder stays the one of the step before."""

    def __init__(self, place: Path) -> None:
        self.folder, self.outputs, self.seconds = place, {}, {}
        programs = f"{Path(sys.executable).resolve().parent}:{os.environ['PATH']}"
        who = {f"GIT_{role}_{what}": "a@example.com"
               for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if name.startswith(REGISTRIES)}
        (place / "home").mkdir()
        self.variables = {**kept, **who, "HOME": f"{place / 'home'}", "PATH": programs}

    def type(self, step: str) -> None:
        begin = time.monotonic()
        if step.startswith(("from ", "import ")):
            app = self.folder / "app.py"
            app.write_text(app.read_text().replace(LAST_LINE, step + LAST_LINE))
        else:
            self.outputs[step] = self._shell(step)
        self.seconds[step] = round(time.monotonic() - begin, 1)

    def _shell(self, line: str) -> str:
        ended = subprocess.run(
            ("bash", "-e", "-c", f"{line}\npwd"),
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert (ended.returncode, "Traceback" in ended.stdout) == (0, False), (line, ended.stdout)
        self.folder = Path(ended.stdout.splitlines()[-1])
        return ended.stdout

    def output(self, word: str) -> str:
        """Return what the step with a word in it printed."""
        return next(text for step, text in self.outputs.items() if word in step)


def test_a_newcomer_has_an_answer_a_plan_and_a_bucket(tmp_path, record_property):
    build = (UV, "--quiet", "build", "--wheel", "--out-dir", tmp_path, ROOT)
    subprocess.run(build, check=True)
    newcomer, steps = Newcomer(tmp_path), page_steps()
    try:
        for step in steps:
            newcomer.type(step)
    finally:
        record_property("seconds", newcomer.seconds)
        roundhouse = newcomer.folder / ".venv" / "bin" / "roundhouse"
        if roundhouse.exists():
            newcomer.type(f"{roundhouse} down")
    assert len(steps) <= STEPS and sum(newcomer.seconds.values()) <= SECONDS, newcomer.seconds

    (row,) = (line for line in newcomer.output(" invoke ").splitlines() if "1 a cat" in line)
    same, kitten, engine = map(float, re.findall(r"\d\.\d{3}", row))
    assert same == 1.0 and kitten > engine
    assert "my-embedder" in newcomer.output(" plan")
    (template,) = (newcomer.folder / "cdk.out").rglob("*Data*.template.json")
    resources = json.loads(template.read_text())["Resources"].values()
    assert [resource["Type"] for resource in resources] == ["AWS::S3::Bucket"]
