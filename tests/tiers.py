"""Runs the suite tier by tier, says what each needs, and lists what could not run: `python -m
tests.tiers [TIER ...]`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "test"


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A folder of tests and the environment whose interpreter runs it."""

    name: str
    needs: str
    suites: tuple[tuple[str, str], ...]
    """(environment folder, test folder) pairs."""


TIERS = (
    Tier(
        name="unit",
        needs="its own environment",
        suites=(
            (".venv", "tests/unit/onboarding"),
            (".venv", "tests/unit/roundhouse"),
            (".venv", "tests/unit/template_rules"),
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
    Tier(
        name="contract",
        needs="Triton 2.51 and the Python server",
        suites=((".venv", "tests/contract"),),
    ),
    Tier(
        name="local_cloud",
        needs="MiniStack, cdk, namespaces",
        suites=((".venv", "tests/local_cloud"),),
    ),
    Tier(name="gpu", needs="an NVIDIA GPU with trtexec", suites=((".venvs/builder", "tests/gpu"),)),
)


@dataclass
class Outcome:
    """What one tier came to."""

    tier: Tier
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    not_run: list[str] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    """Runs the named tiers, or all. Exit code 1 when anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tiers",
        nargs="*",
        metavar="TIER",
        help=f"one of {', '.join(tier.name for tier in TIERS)}; default: all",
    )
    wanted = parser.parse_args(arguments).tiers
    unknown = sorted(set(wanted) - {tier.name for tier in TIERS})
    if unknown:
        parser.error(
            f"unknown tier {', '.join(unknown)}; allowed: {', '.join(tier.name for tier in TIERS)}"
        )
    outcomes = [_run(tier) for tier in TIERS if not wanted or tier.name in wanted]
    _print_table(outcomes)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def _run(tier: Tier) -> Outcome:
    outcome = Outcome(tier=tier)
    begin = time.monotonic()
    for environment, folder in tier.suites:
        print(f"\n=== {tier.name}: {folder} ({environment}; needs {tier.needs})", flush=True)
        _run_suite(outcome, environment, folder)
    outcome.seconds = time.monotonic() - begin
    return outcome


def _run_suite(outcome: Outcome, environment: str, folder: str) -> None:
    report = REPORTS / f"{folder.replace('/', '-')}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    python = ROOT / environment / "bin" / "python"
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-rs",
        "--durations=5",
        f"--junitxml={report}",
        folder,
    ]
    code = subprocess.run(command, cwd=ROOT, check=False, env=_environment()).returncode
    if not report.exists():
        outcome.failed += 1
        print(
            f"{folder}: pytest ended with code {code} and no report; run `make environments`.",
            flush=True,
        )
        return
    failed_before = outcome.failed
    _count(outcome, report)
    if code != 0 and outcome.failed == failed_before:
        outcome.failed += 1


def _environment() -> dict[str, str]:
    quiet = {
        "CDK_VALIDATION": "false",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "CDK_DISABLE_VERSION_CHECK": "1",
    }
    return {**os.environ, **quiet}


def _count(outcome: Outcome, report: Path) -> None:
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


def _print_table(outcomes: list[Outcome]) -> None:
    print(f"\n{'tier':<14}{'passed':>8}{'failed':>8}{'not run':>9}{'seconds':>9}  needs")
    for o in outcomes:
        print(
            f"{o.tier.name:<14}{o.passed:>8}{o.failed:>8}{len(o.not_run):>9}{o.seconds:>9.1f}  {o.tier.needs}"
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
