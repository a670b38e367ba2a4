"""Runs the suite tier by tier, says what each needs, and lists what could not run.

`python -m tests.tiers [TIER ...]`.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "test"


SIDE_BY_SIDE = 3
"""Suites at a time: many tests wait. More of them make two cores no faster."""


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A tier: test folders, the environments whose interpreters run them, and what they need."""

    name: str
    needs: str
    suites: tuple[tuple[str, str], ...]
    """(environment folder, test folder) pairs."""
    processes: int = 1
    """Tests that mostly wait are spread over several processes, a file in one of them."""
    apart: str | None = None
    """The command that runs it; without its name it is only counted, as not run."""


TIERS = (
    Tier(
        name="local_cloud",
        needs="MiniStack, cdk, namespaces",
        suites=((".venv", "tests/local_cloud"),),
        processes=3,
    ),
    Tier(
        name="contract",
        needs="Triton 2.51 and the Python server",
        suites=((".venv", "tests/contract"),),
    ),
    Tier(
        name="unit",
        needs="its own environment",
        suites=(
            (".venvs/builder", "tests/unit/engine_build"),
            (".venv", "tests/unit/roundhouse"),
            (".venvs/server", "tests/unit/container"),
            (".venv", "tests/unit/onboarding"),
            (".venv", "tests/unit/stacks"),
            (".venv", "tests/unit/local_cloud"),
            (".venv", "tests/unit/rehearsal"),
            (".venv", "tests/unit/template_rules"),
            (".venv", "tests/unit/vllm_server"),
            (".venv", "tests/unit/benchmarks"),
        ),
    ),
    Tier(
        name="compile_check",
        needs="TensorRT-RTX, no GPU",
        suites=((".venvs/builder", "tests/compile_check"),),
    ),
    Tier(name="synth", needs="Node, aws-cdk-lib, cfn-lint", suites=((".venv", "tests/synth"),)),
    Tier(
        name="package",
        needs="PyPI, npm, Node, git",
        suites=((".venv", "tests/package"),),
    ),
    Tier(name="docs", needs="the documents", suites=((".venv", "tests/docs"),)),
    Tier(
        name="bindings",
        needs="gcc and NVIDIA's Python bindings, no GPU",
        suites=((".venvs/builder", "tests/bindings"),),
    ),
    Tier(name="gpu", needs="an NVIDIA GPU with trtexec", suites=((".venvs/builder", "tests/gpu"),)),
    Tier(
        name="rehearsal",
        needs="MiniStack, cdk, act, git, namespaces",
        suites=((".venv", "tests/rehearsal"),),
        apart="make rehearsal",
    ),
    Tier(
        name="newcomer",
        needs="PyPI, npm, Node, git, namespaces, an empty home",
        suites=((".venv", "tests/newcomer"),),
        apart="make newcomer",
    ),
    Tier(
        name="text_generation",
        needs="vLLM and llm-compressor on a CPU",
        suites=(
            (".venvs/quantizer", "tests/text_generation/quantizer"),
            (".venv", "tests/text_generation/build"),
            (".venv", "tests/text_generation/vllm"),
        ),
        apart="make test-chat",
    ),
    Tier(
        name="aws",
        needs="an AWS account, and leave to spend money in it",
        suites=((".venv", "tests/aws"),),
        apart="make test-aws",
    ),
)
"""Suites begin in this order: the longest first, so that none is left to run alone at the end."""


@dataclass
class Outcome:
    """The counts of one tier; `seconds`: the sum of its suites'."""

    tier: Tier
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    not_run: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add the counts of some of its suites."""
        self.seconds += other.seconds
        self.passed += other.passed
        self.failed += other.failed
        self.not_run += other.not_run


def main(arguments: list[str] | None = None) -> int:
    """Run the named tiers, or all; exit code 1 when a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(tier.name for tier in TIERS)
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"one of {names}; default: all")
    chosen = parser.parse_args(arguments).tiers
    unknown = sorted(set(chosen) - {tier.name for tier in TIERS})
    if unknown:
        parser.error(f"unknown tier {', '.join(unknown)}; allowed: {names}")
    outcomes = [Outcome(tier=tier) for tier in TIERS if not chosen or tier.name in chosen]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        runs = []
        for outcome in outcomes:
            tier = outcome.tier
            if tier.apart is None:
                runs += [(outcome, pool.submit(run_suites, tier, (one,))) for one in tier.suites]
            elif tier.name in chosen:
                runs.append((outcome, pool.submit(run_suites, tier, tier.suites)))
            else:
                outcome.not_run = apart_tests(tier)
        for outcome, run in runs:
            outcome.add(run.result())
    print_table(outcomes)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def apart_tests(tier: Tier) -> list[str]:
    """Return the tests of a tier that another command runs, with that command."""
    return [
        f"{test}: `{tier.apart}` runs it" for _, folder in tier.suites for test in tests_of(folder)
    ]


def run_suites(tier: Tier, suites: Sequence[tuple[str, str]]) -> Outcome:
    """Run suites of a tier one after the other."""
    outcome, begin = Outcome(tier=tier), time.monotonic()
    for environment, folder in suites:
        run_suite(outcome, environment, folder)
    outcome.seconds = time.monotonic() - begin
    return outcome


def run_suite(outcome: Outcome, environment: str, folder: str) -> None:
    """Run one test folder with one environment's interpreter and print its output when it ends."""
    tier = outcome.tier
    report = REPORTS / f"{folder.replace('/', '-')}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    python = ROOT / environment / "bin" / "python"
    spread = ("-n", str(tier.processes), "--dist", "loadfile") if tier.processes > 1 else ()
    # Every start of pytest would import it, a second long, for one file.
    plugins = () if tier.name == "contract" else ("-p", "no:schemathesis")
    # In pytest's own folder, suites side by side remove the same old folders: the later one fails.
    work = tempfile.mkdtemp(prefix="rh-")
    own = (f"--junitxml={report}", f"--basetemp={work}/t")
    options = ("-q", "-rs", "--durations=5", *own, *plugins, *spread)
    print(f"=== begins: {folder}", flush=True)
    result = subprocess.run(
        (str(python), "-m", "pytest", *options, folder),
        cwd=ROOT,
        check=False,
        env=test_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode == 0:
        shutil.rmtree(work, ignore_errors=True)
    title = f"=== {tier.name}: {folder} ({environment}; needs {tier.needs})"
    print(f"\n{title}\n{result.stdout}", end="", flush=True)
    if not report.exists():
        outcome.failed += 1
        reason = f"pytest ended with code {result.returncode} and no report"
        print(f"{folder}: {reason}; run `make environments`.", flush=True)
        return
    failed_before = outcome.failed
    count_cases(outcome, report)
    if result.returncode != 0 and outcome.failed == failed_before:
        outcome.failed += 1


def tests_of(folder: str) -> list[str]:
    """Return the test functions of a folder, without importing what they need."""
    return [
        f"{file.relative_to(ROOT)}::{node.name}"
        for file in sorted((ROOT / folder).rglob("test_*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_environment() -> dict[str, str]:
    own = {
        "CDK_VALIDATION": "false",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "CDK_DISABLE_VERSION_CHECK": "1",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        # torch's threads wait busily for each other, and take the cores from the suites beside.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    return {**os.environ, **own}


def count_cases(outcome: Outcome, report: Path) -> None:
    for case in ET.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        elif skipped is not None:
            outcome.not_run.append(
                f"{case.get('classname')}.{case.get('name')}: {skipped.get('message')}"
            )
        else:
            outcome.passed += 1


def print_table(outcomes: list[Outcome]) -> None:
    print(f"\n{'tier':<14}{'passed':>8}{'failed':>8}{'not run':>9}{'seconds':>9}  needs")
    for o in outcomes:
        print(
            f"{o.tier.name:<14}{o.passed:>8}{o.failed:>8}{len(o.not_run):>9}{o.seconds:>9.1f}  "
            f"{o.tier.needs}"
        )
    for o in outcomes:
        for reason in o.not_run:
            print(f"not run: {o.tier.name}: {reason}")
    passed, failed, skipped = (
        sum(n) for n in zip(*((o.passed, o.failed, len(o.not_run)) for o in outcomes), strict=True)
    )
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)


if __name__ == "__main__":
    sys.exit(main())
