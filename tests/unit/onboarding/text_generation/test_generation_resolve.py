"""What an environment serves of a text generator, by the checkpoints in its lock."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from onboarding.fault import FaultsError
from onboarding.generation_resolve import checkpoint_keys, generation_deployments
from onboarding.lock import write_lock_entry
from onboarding.text_generation.platforms import quantizer_tools
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.entries import checkpoint_entry
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree

BASE = yaml.safe_load((FIXTURES / "text_generation" / "base.yaml").read_text())
REPOSITORY = Path(__file__).parents[4]
SCHEMES = {
    "schemes": ["bf16", "fp8", "awq"],
    "calibration": {"dataset": "models/data/calibration.txt"},
}


def _root(folder, **changes):
    data = {name: dict(value) if isinstance(value, dict) else value for name, value in BASE.items()}
    for section, values in {"quantization": SCHEMES, **changes}.items():
        data[section] = {**data[section], **values}
    return generator_tree(folder, yaml.safe_dump(data))


def _deployment(root):
    (deployment,) = generation_deployments(read_tree(root), "cloud")
    return deployment


def _build(root, *schemes, **changes):
    spec = _deployment(root).spec
    for key, scheme in checkpoint_keys(spec, root).items():
        if scheme in schemes:
            entry = checkpoint_entry(key, scheme, **changes)
            write_lock_entry(root / "models", "chat", entry)


def test_no_checkpoint_is_built_so_all_are_wanted(tmp_path):
    root = _root(tmp_path)
    found = _deployment(root)
    assert found.entry is None and found.built == () and found.candidate.holds
    assert [scheme for _, scheme in found.wanted] == ["bf16", "fp8", "awq"]
    assert dict(found.wanted) == checkpoint_keys(found.spec, root)
    assert "`roundhouse build --env cloud --model chat`" in found.problem


def test_accepted_checkpoints_serve_and_others_never_do(tmp_path):
    root = _root(tmp_path)
    _build(root, "awq", accepted=False, reason="KL 0.7 is above 0.1")
    assert _deployment(root).entry is None
    assert "awq: KL 0.7 is above 0.1" in _deployment(root).problem
    _build(root, "bf16")
    found = _deployment(root)
    assert found.entry.scheme == found.candidate.scheme == "bf16" and found.problem is None
    assert [entry.scheme for entry in found.built] == ["bf16", "awq"]
    assert [scheme for _, scheme in found.wanted] == ["fp8"]
    _build(root, "fp8")
    found = _deployment(root)
    assert (found.entry.scheme, found.wanted) == ("fp8", ())


def test_problem_names_budget_or_slo_where_nothing_is_left_to_build(tmp_path):
    root = _root(tmp_path, quantization={"schemes": ["fp8"]})
    _build(root, "fp8", accepted=False, reason="KL 0.7 is above 0.1")
    assert "within its budget; fp8: KL 0.7 is above 0.1" in _deployment(root).problem
    slow = _root(tmp_path / "slow", slo={"itl_p95_ms": 20})
    _build(slow, "bf16")
    _build(slow, "fp8", "awq", accepted=False, reason="wrong")
    assert "holds its SLO: bf16 does not" in _deployment(slow).problem


def test_plan_key_and_variables_follow_from_what_serves(tmp_path):
    root = _root(tmp_path)
    before = _deployment(root)
    _build(root, "bf16")
    after = _deployment(root)
    assert re.fullmatch("[0-9a-f]{20}", after.plan_key) and after.plan_key != before.plan_key
    assert after.container_environment["SM_VLLM_SERVED_MODEL_NAME"] == "chat"
    assert after.engine_version == "0.30.0"
    assert after.inference_ami_version == "al2023-ami-sagemaker-inference-gpu-4-1"


def test_refuses_a_source_without_headers(tmp_path):
    text = yaml.safe_dump(BASE | {"source": {"huggingface": BASE["source"]["huggingface"]}})
    with pytest.raises(FaultsError, match="run `roundhouse check --fetch-headers chat`"):
        generation_deployments(read_tree(generator_tree(tmp_path, text)), "cloud")


def test_tools_are_those_that_are_installed():
    requirements = REPOSITORY / "requirements" / "quantizer.txt"
    if not requirements.exists():
        pytest.skip("the quantizer's requirements are not locked yet")
    pins = dict(re.findall(r"^([a-z-]+)==([0-9.]+)", requirements.read_text(), re.MULTILINE))
    tools = {name: version for name, version in quantizer_tools().items() if name in pins}
    assert tools and tools == {name: pins[name] for name in tools}
