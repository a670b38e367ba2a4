"""Return on investment of a text generator: a measured baseline against the plan."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from onboarding.fault import FaultsError
from onboarding.generation_resolve import checkpoint_keys
from onboarding.platform import instance_types
from onboarding.text_generation.checkpoint_lock import GenerationKnee, write_checkpoint_entry
from onboarding.text_generation.plan import Candidate
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.tree import read_tree
from onboarding.yaml_text import load_yaml
from roundhouse.cli import app as cli
from roundhouse.errors import RoundhouseError
from roundhouse.savings.generation import (
    Baseline,
    GenerationReturn,
    baseline_side,
    plan_side,
    read_baseline,
)
from tests.unit.onboarding.text_generation.entries import checkpoint_entry
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
SPEC = TextGenerationSpec.model_validate_json(json.dumps(load_yaml(BASE)))
"""Tokens within 80 ms, 8 requests at once."""
PLAN = Candidate(
    instance_type="ml.g5.12xlarge", gpu="A10G", scheme="bf16", kv_cache="bf16", tensor_parallel=1,
    copies_per_instance=4, holds=True, expected_requests=6, copies=2, instances=1, itl_ms=50.0,
    ttft_ms=1000.0,
)  # fmt: skip


def document_of(**changes) -> dict:
    row = {"lowest": 20.0, "highest": 20.0, "rounds": 3}
    return {
        "tool": "transformers 5.17 generate", "model": "chat", "dtype": "bf16",
        "hardware": "an A10G", "gpu": "A10G", "gpus": 1, "prompt_tokens": 512,
        "output_tokens": 128, "date": "2026-11-23", "command": "python -m x",
        "rows": [
            {"batch": 1, "output_tokens_per_second": 20.0, **row},
            {"batch": 2, "output_tokens_per_second": 30.0, **row},
            {"batch": 16, "output_tokens_per_second": 120.0, **row},
        ],
    } | changes  # fmt: skip


def baseline(**changes) -> Baseline:
    return Baseline.model_validate_json(json.dumps(document_of(**changes)))


BASELINE = baseline()


def side(measured_before=BASELINE, *, demand=320.0, instance="ml.g5.xlarge", price=1.0):
    row = None if instance is None else instance_types()[instance]
    return baseline_side(measured_before, spec=SPEC, demand=demand, instance=row, price=price)


def compared(before, *, price=5.0, build_usd=10.0) -> GenerationReturn:
    after, demand = plan_side(PLAN, demand=None, concurrency=8, price=price)
    return GenerationReturn(
        model="chat", environment="cloud", demand=demand, baseline=before, plan=after,
        build_usd=build_usd,
    )  # fmt: skip


def test_baseline_counts_by_its_fastest_batch_within_the_slo():
    found = side()
    assert (found.tokens_per_second, found.instances) == (30.0, 11)
    assert found.usd_an_hour == 11 and found.usd_a_million_tokens == pytest.approx(9.549, abs=0.01)
    assert "batch 2, 67 ms a token" in found.note


def test_baseline_runs_a_process_on_every_gpu():
    assert side(instance="ml.g5.12xlarge").tokens_per_second == 120.0


def test_baseline_that_never_holds_the_slo_says_so():
    slow = baseline(rows=[document_of()["rows"][2]])
    assert "133 ms a token: above the SLO of 80 ms" in side(slow).note


def test_plan_makes_what_the_slos_concurrency_asks():
    after, demand = plan_side(PLAN, demand=None, concurrency=8, price=5.0)
    assert demand == pytest.approx(160.0)
    assert (after.instances, after.tokens_per_second) == (1, pytest.approx(320.0))
    assert after.origin == "planned, not measured"


def test_plan_that_was_measured_counts_by_its_load_test():
    after, demand = plan_side(PLAN, demand=1000.0, concurrency=8, price=None, measured=100.0)
    assert (after.instances, after.usd_an_hour, demand) == (3, None, 1000.0)
    assert after.origin.startswith("measured")


def test_saving_pays_the_build():
    result = compared(side(demand=160.0))
    # 6 baselines of 1 USD an hour against 5 USD: 730 USD a month.
    assert result.investment.saving_a_month == pytest.approx(730)
    assert result.months == pytest.approx(10 / 730)
    assert result.speed_up == pytest.approx(320 / 30)


@pytest.mark.parametrize(
    ("before", "changes"),
    [(side(None), {}), (side(price=None), {}), (side(), {"price": None})],
    ids=["no baseline", "no price of the baseline", "no price of the plan"],
)
def test_what_is_not_known_is_never_guessed(before, changes):
    result = compared(before, **changes)
    assert result.months is None and result.investment.saving_a_month is None
    assert "not known" in result.investment.outcome


def test_build_of_unknown_cost_has_no_months():
    result = compared(side(demand=160.0), build_usd=None)
    assert (
        result.months is None and "the cost of the build is not known" in result.investment.outcome
    )


def test_refuses_a_type_of_another_gpu():
    with pytest.raises(RoundhouseError, match="measured on A10G; measure it there"):
        side(instance="ml.g6.xlarge")


def test_refuses_a_file_that_is_no_baseline(tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(document_of(rows=[], gpus=-1)))
    with pytest.raises(FaultsError) as error:
        read_baseline(path)
    assert {fault.what.split(":")[0] for fault in error.value.faults} == {"rows", "gpus"}
    with pytest.raises(RoundhouseError, match="No such file"):
        read_baseline(tmp_path / "none.json")


def compare(tmp_path, *words):
    root = generator_tree(tmp_path / "tree", BASE.replace("[ml.g6e.2xlarge]", "[ml.g5.2xlarge]"))
    command = ["compare", "chat", "--env", "cloud", "--root", str(root)]
    result = CliRunner().invoke(cli.app, [*command, "--output", str(tmp_path / "out"), *words])
    return result, " ".join(f"{result.output} {result.exception or ''}".split())


def test_compare_shows_baseline_and_plan(tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(document_of()))
    result, text = compare(tmp_path, "--baseline", str(path), "--instance-type", "ml.g5.xlarge")
    assert result.exit_code == 0
    assert "baseline: transformers 5.17 generate, bf16" in text and "x the tokens" in text
    document = json.loads((tmp_path / "out" / "return.json").read_text())
    assert document["baseline"]["tokens_per_second"] == 30.0
    assert document["investment"]["saving_usd_a_month"] > 0
    page = (tmp_path / "out" / "return.html").read_text()
    assert "Return on investment" in page and "transformers 5.17 generate" in page


def test_compare_without_a_baseline_knows_only_the_plan(tmp_path):
    result, text = compare(tmp_path)
    assert result.exit_code == 0 and "give --baseline FILE" in text and "not known" in text


def test_compare_counts_a_knee_that_was_recorded(tmp_path):
    root = generator_tree(tmp_path / "tree", BASE.replace("[ml.g6e.2xlarge]", "[ml.g5.2xlarge]"))
    tree = read_tree(root)
    (key,) = checkpoint_keys(tree.views["cloud"].generators["chat"].spec, root)
    knee = GenerationKnee(
        concurrency=6, goodput_requests_per_second=0.5, ttft_p95_ms=900, itl_p95_ms=40,
        output_tokens_per_second=200, instance_type="ml.g5.2xlarge", endpoint="cloud-chat",
        date="2026-11-23", tool="a test",
    )  # fmt: skip
    entry = checkpoint_entry(key, "bf16", knee=knee)
    write_checkpoint_entry(root / tree.environments["cloud"].locks, "chat", entry)
    command = ["compare", "chat", "--env", "cloud", "--root", str(root)]
    CliRunner().invoke(cli.app, [*command, "--output", str(tmp_path / "out")])
    document = json.loads((tmp_path / "out" / "return.json").read_text())
    assert document["plan"]["tokens_per_second"] == 200
    assert document["plan"]["origin"] == "measured by `roundhouse bench`"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--axes", "precision"), "is a text generator"),
        (("--instance-type", "ml.nope"), "is not known"),
        (("--demand", "0"), "--demand 0"),
    ],
)
def test_refuses_options_of_engines(words, reason, tmp_path):
    result, text = compare(tmp_path, *words)
    assert result.exit_code != 0 and reason in text
