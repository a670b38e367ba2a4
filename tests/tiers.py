"""Runs the suite tier by tier, says what each needs, and lists what could not run.

`python -m tests.tiers [TIER ...]`.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "test"


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A tier: test folders, the environments whose interpreters run them, and what they need."""

    name: str
    needs: str
    suites: tuple[tuple[str, str], ...]
    """(environment folder, test folder) pairs."""
    group: str = "short"
    """Tiers of a group run one after the other, beside other groups: many tests wait."""
    processes: int = 1
    """Tests that mostly wait are spread over several processes, a file in one of them."""
    apart: str | None = None
    """The command that runs it; without its name it is only counted, as not run."""


TIERS = (
    Tier(
        name="unit",
        group="unit",
        needs="its own environment",
        suites=(
            (".venv", "tests/unit/onboarding"),
            (".venv", "tests/unit/roundhouse"),
            (".venv", "tests/unit/local_cloud"),
            (".venv", "tests/unit/benchmarks"),
            (".venv", "tests/unit/template_rules"),
            (".venv", "tests/unit/stacks"),
            (".venv", "tests/unit/generation_front"),
            (".venvs/server", "tests/unit/container"),
            (".venvs/builder", "tests/unit/engine_build"),
        ),
    ),
    Tier(name="docs", needs="the documents", suites=((".venv", "tests/docs"),)),
    Tier(name="synth", needs="Node, aws-cdk-lib, cfn-lint", suites=((".venv", "tests/synth"),)),
    Tier(
        name="compile_check",
        needs="TensorRT-RTX, no GPU",
        suites=((".venvs/builder", "tests/compile_check"),),
    ),
    Tier(
        name="bindings",
        needs="gcc and NVIDIA's Python bindings, no GPU",
        suites=((".venvs/builder", "tests/bindings"),),
    ),
    Tier(name="gpu", needs="an NVIDIA GPU with trtexec", suites=((".venvs/builder", "tests/gpu"),)),
    Tier(
        name="local_cloud",
        group="local_cloud",
        needs="MiniStack, cdk, namespaces",
        suites=((".venv", "tests/local_cloud"),),
        processes=3,
    ),
    Tier(
        name="rehearsal",
        needs="MiniStack, cdk, act, git, namespaces",
        suites=((".venv", "tests/rehearsal"),),
    ),
    Tier(
        name="text_generation",
        group="local_cloud",
        needs="vLLM and llm-compressor on a CPU",
        suites=(
            (".venvs/quantizer", "tests/text_generation/quantizer"),
            (".venv", "tests/text_generation/build"),
            (".venv", "tests/text_generation/vllm"),
        ),
        apart="make test-chat",
    ),
    Tier(
        name="contract",
        group="local_cloud",
        needs="Triton 2.51 and the Python server",
        suites=((".venv", "tests/contract"),),
    ),
)


@dataclass
class Outcome:
    """The counts of one tier."""

    tier: Tier
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    not_run: list[str] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    """Run the named tiers, or all; exit code 1 when a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(tier.name for tier in TIERS)
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"one of {names}; default: all")
    chosen = parser.parse_args(arguments).tiers
    unknown = sorted(set(chosen) - {tier.name for tier in TIERS})
    if unknown:
        parser.error(f"unknown tier {', '.join(unknown)}; allowed: {names}")
    tiers = [tier for tier in TIERS if not chosen or tier.name in chosen]
    group_names = dict.fromkeys(tier.group for tier in tiers)
    groups = [[tier for tier in tiers if tier.group == name] for name in group_names]
    with ThreadPoolExecutor(len(groups)) as pool:
        parts = pool.map(
            lambda group: [run_tier(tier, named=tier.name in chosen) for tier in group], groups
        )
        outcomes = [outcome for part in parts for outcome in part]
    print_table(outcomes)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def run_tier(tier: Tier, *, named: bool = True) -> Outcome:
    """Run the suites of a tier one after the other; count one that runs apart unless named."""
    outcome = Outcome(tier=tier)
    if tier.apart is not None and not named:
        outcome.not_run = [
            f"{test}: `{tier.apart}` runs it"
            for _, folder in tier.suites
            for test in tests_of(folder)
        ]
        return outcome
    begin = time.monotonic()
    for environment, folder in tier.suites:
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
    options = ("-q", "-rs", "--durations=5", f"--junitxml={report}", *plugins, *spread)
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
    quiet = {
        "CDK_VALIDATION": "false",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "CDK_DISABLE_VERSION_CHECK": "1",
    }
    return {**os.environ, **quiet}


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
