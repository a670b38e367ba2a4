"""Every kind of endpoint, by name: what is changed of the plain one, and of its lock.

`python -m tests.synth.kinds` writes what the template of each kind has other than the plain one's
into golden/endpoints.txt and golden/generators.txt, which are reviewed like code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from onboarding.deployment import Deployment
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.endpoint_stack import Template, endpoint_template
from tests.synth import generation_cases
from tests.synth.deployments import fixed_checkpoint, fixed_engines, with_served
from tests.synth.endpoint_cases import (
    BESIDE,
    CAPTURE,
    CLOUD,
    IMAGES,
    MODEL,
    POOLS,
    QUEUE,
    beside,
    endpoint_settings,
    endpoints,
)
from tests.synth.generation_cases import FIXED, LEGAL, SCALED, ZERO, knee
from tests.unit.onboarding.trees import Change

FOLDER = Path(__file__).parent / "golden"
Changes = dict[str, Change]
KEY = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
SIGNER = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEtnVinX9EdH1jRvJuawJ6ZzY3ceM6Qh+Jqgsstu9c7HVasNvs1lJn69hG"
    "XF2B2DNmvqpoc1Jt3kgyNaP2Ixo11g=="
)
NETWORK = """network:
  vpc_id: vpc-0123456789abcdef0
  subnet_ids: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]
  security_group_ids: [sg-0123456789abcdef0]"""
SCHEDULE = "schedule: [{schedule: 'cron(0 6 ? * MON-FRI *)', min: 2, timezone: Europe/Berlin}]"
DAY = "schedule: [{schedule: 'cron(0 6 * * ? *)', min: 2, max: 3}]"
NIGHT = "schedule: [{schedule: 'cron(0 19 * * ? *)', min: 0, max: 3}]"
CPU, PYTHON = {"ml.g5.xlarge": "ml.c7i.large"}, {"server: triton": "server: python"}
FOUR_GPUS = {"ml.g5.xlarge": "ml.g5.12xlarge"}


def counts(least: int, most: int = 40) -> dict[str, str]:
    return {"min: 1": f"min: {least}", "max: 2": f"max: {most}"}


def scaling(line: str) -> dict[str, str]:
    return {"    max: 2": f"    max: 2\n    {line}"}


def settings(*lines: str, **words: str) -> Changes:
    return {MODEL: endpoint_settings(*lines, **words)}


SYNTHESIZED: Mapping[str, Changes] = {
    "plain": {},
    "variants": {
        BESIDE: beside(
            "{joins: example, weight: 0.2, instance_type: ml.g6.xlarge, scaling: {min: 2, max: 2}}"
        )
    },
    "shadow": {BESIDE: beside("{joins: example, role: shadow, weight: 0.1}")},
    "pools": settings(POOLS),
    "capture": settings(CAPTURE),
    "queue": settings(QUEUE, **{"min: 1": "min: 0"}),
    "queue with pools": settings(QUEUE, POOLS),
    "schedule": {MODEL: scaling(SCHEDULE)},
    "scaled to zero": {MODEL: {"min: 1": "min: 0"}},
    "fixed": {MODEL: {"max: 2": "max: 1"}},
    "linear": settings("rollout: linear", "latency_slo_ms: 50"),
    "rolling": settings("rollout: rolling"),
    "all at once": settings("rollout: all-at-once"),
    "cpu": {MODEL: CPU},
    "open": {
        **settings("network_isolation: false"),
        CLOUD: {"name: cloud": f"name: cloud\n{NETWORK}"},
    },
    "everything": {
        **settings(POOLS, CAPTURE, "latency_slo_ms: 50", "rollout: linear"),
        BESIDE: beside("{joins: example, weight: 0.2, instance_type: ml.g6.xlarge}"),
        "models/third-1.yaml": beside("{joins: example}", name="third-1"),
    },
}
"""Those that the CDK synthesises in tests."""
PURE: Mapping[str, Changes] = {
    "metrics": settings("metrics: {}"),
    "no detailed metrics": settings("metrics: {detailed: false}"),
    "detailed metrics": settings("metrics: {detailed: true}"),
    "queue that tells nobody": settings("asynchronous: {}"),
    "queue that a schedule empties": settings("asynchronous: {}", **scaling(NIGHT)),
    "queue of python": settings("asynchronous: {}", **PYTHON),
    "pools of one engine": settings("instance_pools: [{instance_type: ml.g5.2xlarge}]"),
    "missed SLO": settings("latency_slo_ms: 1"),
    **{
        f"{rollout} of {least}": settings(f"rollout: {rollout}", **counts(least))
        for rollout, least in (
            *(("canary", 2), ("canary", 3), ("canary", 20), ("linear", 3), ("linear", 20)),
            *(("rolling", 2), ("rolling", 20)),
        )
    },
    "variants of which the smallest counts": {
        MODEL: counts(20),
        BESIDE: beside("{joins: example, scaling: {min: 4, max: 4}}"),
    },
    "variants of other sizes": {
        BESIDE: beside(
            "{joins: example, weight: 0.25, instance_type: ml.g5.2xlarge,"
            " scaling: {min: 3, max: 3}}"
        )
    },
    "variants that scale": {BESIDE: beside("{joins: example, scaling: {min: 3, max: 6}}")},
    "variants of no weight": {BESIDE: beside("{joins: example, weight: 0}")},
    "variants on a CPU and a GPU": {
        MODEL: {**CPU, **PYTHON},
        BESIDE: beside("{joins: example, instance_type: ml.g5.xlarge}"),
    },
    "four GPUs": {MODEL: FOUR_GPUS},
    "python of four GPUs": {MODEL: {**FOUR_GPUS, **PYTHON}},
    "python": {MODEL: PYTHON},
    "python of three slots": {MODEL: {"server: triton": "server: python\n  instances_per_gpu: 3"}},
    "copies": {MODEL: {"server: triton": "server: triton\n  instances_per_gpu: 2"}},
    "signers": {CLOUD: {"name: cloud": f"name: cloud\ntrusted_signers: [{SIGNER}]"}},
    "python of signers": {
        MODEL: PYTHON,
        CLOUD: {"name: cloud": f"name: cloud\ntrusted_signers: [{SIGNER}]"},
    },
    "own key": {
        **settings(CAPTURE, **CPU),
        CLOUD: {"name: cloud": f"name: cloud\nkms_key_arn: {KEY}"},
    },
    "scaled to zero at night on a CPU": {MODEL: {**CPU, **scaling(NIGHT)}},
    "fixed count of two": {MODEL: counts(2, 2)},
    "fixed count that a schedule moves": {MODEL: {"    max: 2": f"    max: 1\n    {DAY}"}},
    "cool-downs": {
        MODEL: scaling("scale_out_cooldown_seconds: 0\n    scale_in_cooldown_seconds: 900")
    },
}
Lock = Callable[[Deployment], Deployment]
LOCKED: Mapping[str, tuple[Changes, Lock]] = {
    "nothing measured": ({}, partial(fixed_engines, benchmark=())),
    "queue that nothing measured": (
        settings("asynchronous: {}", **{"min: 1": "min: 0"}),
        partial(fixed_engines, benchmark=()),
    ),
    "scaled to zero that nothing measured": (
        settings(**{"min: 1": "min: 0"}),
        partial(fixed_engines, benchmark=()),
    ),
    "loads slowly": ({}, partial(fixed_engines, load_seconds=200.0)),
    "loads slower than SageMaker waits": ({}, partial(fixed_engines, load_seconds=5000.0)),
    "served": (
        {},
        lambda item: with_served(fixed_engines(item), 310.25, gpu_utilization_percent=80.0),
    ),
}
SHARED: Mapping[str, tuple[Changes, Lock]] = {
    "shared": ({}, fixed_engines),
    "shared by many": ({}, partial(fixed_engines, device_memory_mib=15_000.0)),
    "shared by slow ones": ({}, partial(fixed_engines, load_seconds=500.0)),
}
GENERATORS: Mapping[str, dict[str, Any]] = {
    "plain": SCALED,
    "zero": ZERO,
    "fixed": FIXED,
    "adapter": LEGAL,
    "prefix-aware": {"endpoint": {"routing": "prefix-aware"}},
    "measured": {"entry": {"knee": knee(10, "ml.g6e.2xlarge")}},
    "measured elsewhere": {"entry": {"knee": knee(10, "ml.g5.48xlarge")}},
    "queue of the knee": {
        "serving": {"max_num_queued_reqs": None},
        "entry": {"knee": knee(10, "ml.g6e.2xlarge")},
    },
    "queue of one": {"serving": {"max_num_queued_reqs": 1}},
    "whole answers": {"slo": {"streaming": False}},
}


def endpoint_templates() -> dict[str, Template]:
    """The template of every kind of endpoint of engines."""
    locked = {name: (changes, fixed_engines) for name, changes in (SYNTHESIZED | PURE).items()}
    found = {
        name: endpoint_template(lock(endpoints(changes)["example"]), IMAGES)
        for name, (changes, lock) in {**locked, **LOCKED}.items()
    }
    return found | {
        name: endpoint_template(lock(endpoints(changes)["shared"]), IMAGES)
        for name, (changes, lock) in SHARED.items()
    }


def generator_templates() -> dict[str, Template]:
    """The template of every kind of text generator."""

    def template(changes: dict[str, Any]) -> Template:
        deployment: GenerationDeployment = generation_cases.generator(**changes)
        return generation_cases.template(fixed_checkpoint(deployment))

    return {name: template(changes) for name, changes in GENERATORS.items()}


def lines(kind: str, template: Template, base: Template) -> Iterator[str]:
    """A line for every property that a template has other than its base, or has no more."""
    for part in ("Conditions", "Outputs", "Resources"):
        own, other = ({**item.get(part, {})} for item in (template, base))
        for name in sorted(own.keys() | other.keys()):
            after, before = (_flat(item.get(name, {})) for item in (own, other))
            for key in sorted(after.keys() | before.keys()):
                value = after.get(key, "gone")
                if value != before.get(key, "gone"):
                    yield f"[{kind}] {name}.{key}: {value}"


def _flat(item: Mapping[str, Any]) -> dict[str, str]:
    """Properties and attributes of a resource as JSON."""
    found = {key: value for key, value in item.items() if key != "Properties"}
    found |= item.get("Properties", {})
    return {key: json.dumps(value, sort_keys=True) for key, value in found.items()}


def golden_texts() -> dict[Path, str]:
    """The golden files of the present code, by path."""
    kinds = {"endpoints": endpoint_templates(), "generators": generator_templates()}
    return {FOLDER / f"{name}.txt": _text(templates) for name, templates in kinds.items()}


def _text(templates: Mapping[str, Template]) -> str:
    """Kinds whose names begin alike are told from the first of them, others from the plain one."""
    found: list[str] = []
    for kind, template in templates.items():
        base = kind.split()[0]
        if base == kind or base not in templates:
            base = "plain"
        found += lines(kind, template, {} if kind == "plain" else templates[base])
    return "".join(f"{line}\n" for line in found)


if __name__ == "__main__":
    for path, text in golden_texts().items():
        path.write_text(text, encoding="utf-8")
