"""Runs the load test of a text generator, shows its progress and writes its report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from engine_build.card.render import milliseconds, per_second
from roundhouse.errors import WrongAnswerError
from roundhouse.load_test.bench import COLORS, prepare_folder, report_page, run_interruptible
from roundhouse.load_test.generation.load_test import GenerationRunner, GenerationTest
from roundhouse.load_test.generation.measurement import GenerationMeasurement
from roundhouse.load_test.generation.options import GenerationOptions
from roundhouse.load_test.generation.result import GenerationResult, generation_document
from roundhouse.load_test.generation.subject import generation_test
from roundhouse.load_test.generation.verdict import p95
from roundhouse.load_test.measurement import Outcome
from roundhouse.load_test.result import circumstances
from roundhouse.paths import Paths, output_folder
from roundhouse.report import Report, Step


@dataclass(frozen=True, kw_only=True)
class GenerationReport:
    """A load test's result and the page that it was written to."""

    result: GenerationResult
    page: Path

    @property
    def data(self) -> Path:
        """The JSON file beside the page."""
        return self.page.with_suffix(".json")


def run_generation_bench(
    paths: Paths,
    report: Report,
    options: GenerationOptions,
    *,
    render: Callable[[GenerationResult], bytes],
) -> GenerationReport:
    """Run a load test and write its report; Ctrl-C ends the load and keeps what was measured.

    Raises WrongAnswerError, after the report is written, when no request was answered;
    RoundhouseError and NotReadyError before the load.
    """
    folder = prepare_folder(paths, options.output)
    test = generation_test(paths, report, options)
    result = _run(test, report)
    page = report_page(folder, test.target.subject, result.circumstances.date)
    written = GenerationReport(result=result, page=page)
    document = json.dumps(generation_document(result), indent=2, allow_nan=False)
    with output_folder(folder):
        written.page.write_bytes(render(result))
        written.data.write_text(document + "\n", encoding="utf-8")
    if not result.broken_off and result.chief is None:
        raise WrongAnswerError(
            f"{test.target.subject}: {result.headline} The report is {written.page}."
        )
    return written


def _run(test: GenerationTest, report: Report) -> GenerationResult:
    with report.step(f"Load on {test.target.subject}") as step:
        runner = GenerationRunner(
            test=test,
            on_second=lambda measurement: _update(step, measurement),
            on_phase=lambda phase: report.console.print(f"  {_phase_line(phase)}", soft_wrap=True),
        )
        is_broken_off = run_interruptible(runner.run, runner.interrupted)
        answers = sum(phase.answered for phase in runner.phases)
        step.finish("broken off" if is_broken_off else f"{answers:,} answers")
    return GenerationResult(
        test=test,
        phases=runner.phases,
        circumstances=circumstances(),
        tokens=runner.tokens,
        steps=runner.steps,
        broken_off=is_broken_off,
    )


def _update(step: Step, measurement: GenerationMeasurement) -> None:
    second, phase = measurement.seconds_seen[-1], measurement.phase
    errors = f" · {measurement.failed:,} errors" if measurement.failed else ""
    step.update(
        f"{phase.name} · {second.second + 1} s · {measurement.answered:,} answers, "
        f"{second.in_flight} under way{errors}"
    )


def _phase_line(phase: GenerationMeasurement) -> str:
    goodput = "" if phase.goodput is None else f"goodput {per_second(phase.goodput)} of "
    errors = f", {phase.failed:,} errors" if phase.failed else ""
    line = escape(
        f"{phase.phase.name}: {goodput}{per_second(phase.requests_per_second)} requests/s, "
        f"{per_second(phase.output_tokens_per_second)} output tokens/s, "
        f"TTFT p95 {milliseconds(p95(phase.ttfts_ms))}, ITL p95 {milliseconds(p95(phase.gaps_ms))}"
        f"{errors}"
    )
    verdict = phase.verdict
    if verdict is None:
        return line
    reason = "" if verdict.outcome is Outcome.held else f" ({escape(verdict.reason)})"
    return f"{line}  [{COLORS.get(verdict.outcome, 'yellow')}]{verdict.outcome}[/]{reason}"
