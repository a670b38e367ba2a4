"""What is loaded: a deployed text generator or a server's URL, with workload and SLO."""

from __future__ import annotations

import json
import urllib.request
from urllib.parse import urlsplit

import yaml

from onboarding.text_generation.spec import TASK, TextGenerationSpec
from onboarding.yaml_text import load_yaml
from roundhouse.aws.bearer_token import bearer_token
from roundhouse.errors import UsageError
from roundhouse.load_test.generation.lengths import lengths_of, parse_lengths
from roundhouse.load_test.generation.load_test import FIRST_CONCURRENCY, GenerationTest
from roundhouse.load_test.generation.measurement import GenerationSlo
from roundhouse.load_test.generation.options import GenerationOptions
from roundhouse.load_test.generation.requests import Workload, read_prompts
from roundhouse.load_test.generation.target import (
    GenerationTarget,
    endpoint_target,
    server_target,
)
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import open_session, valid_tree
from roundhouse.text import choices

MODELS_SECONDS = 10.0


def is_generator(paths: Paths, name: str) -> bool:
    """Return whether a model file of the tree is a text generator's."""
    path = paths.tree / "models" / f"{name}.yaml"
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(document, dict) and document.get("task") == TASK


def generation_test(paths: Paths, report: Report, options: GenerationOptions) -> GenerationTest:
    """Return the load test that the options describe. Raises RoundhouseError, FaultsError."""
    options.require_consistent()
    spec, target = (
        _server(paths, options) if options.url is not None else _endpoint(paths, report, options)
    )
    slo = _slo(options, spec)
    if slo is None and options.is_search:
        raise UsageError(
            "The search for the knee needs an SLO; give --ttft and --itl in milliseconds, or a "
            "load with --concurrency or --rate."
        )
    return GenerationTest(
        target=target,
        workload=workload(options, spec),
        slo=slo,
        first_concurrency=FIRST_CONCURRENCY if spec is None else spec.slo.concurrency,
        options=options,
    )


def workload(options: GenerationOptions, spec: TextGenerationSpec | None) -> Workload:
    """Return what is asked. Raises RoundhouseError, FaultsError."""
    context = None if spec is None else spec.context
    if options.input is not None:
        return read_prompts(options.input, context)
    if options.lengths is not None:
        return Workload(lengths=parse_lengths(options.lengths, context))
    if context is not None:
        return Workload(lengths=lengths_of(context))
    raise UsageError(
        "--url: has no lengths; give --lengths chat, --lengths 512:128, --input FILE.jsonl, or "
        "--model NAME for those of models/NAME.yaml."
    )


def generator_spec(paths: Paths, name: str, environment: str | None = None) -> TextGenerationSpec:
    """Return a text generator of the tree, as an environment has it. Raises RoundhouseError."""
    tree = valid_tree(paths)
    if environment is None:
        known = dict(tree.generators)
    else:
        view = tree.views.get(environment)
        if view is None:
            allowed = choices(environment, sorted(tree.views))
            raise UsageError(f"--env {environment}: no such environment; {allowed}")
        known = {model: file.spec for model, file in view.generators.items()}
    if name not in known:
        raise UsageError(f"{name}: no such text generator; {choices(name, sorted(known))}")
    return known[name]


def _endpoint(
    paths: Paths, report: Report, options: GenerationOptions
) -> tuple[TextGenerationSpec, GenerationTarget]:
    session = open_session(paths, report, str(options.env))
    spec = generator_spec(session.paths, str(options.endpoint), session.environment.name)
    runtime_url = session.clients("sagemaker-runtime").meta.endpoint_url
    token = None
    if options.openai:
        token = bearer_token(session.environment.region)
    return spec, endpoint_target(session.environment, spec, runtime_url, token)


def _server(
    paths: Paths, options: GenerationOptions
) -> tuple[TextGenerationSpec | None, GenerationTarget]:
    url = str(options.url)
    if options.model is not None and is_generator(paths, options.model):
        spec = generator_spec(paths, options.model)
        return spec, server_target(url, spec.name)
    name = _served_model(url) if options.model is None else options.model
    return None, server_target(url, name)


def _served_model(url: str) -> str | None:
    """Return the first model that a server lists; None where it lists none."""
    parts = urlsplit(url)
    address = f"{parts.scheme}://{parts.netloc}/v1/models"
    try:
        with urllib.request.urlopen(address, timeout=MODELS_SECONDS) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None


def _slo(options: GenerationOptions, spec: TextGenerationSpec | None) -> GenerationSlo | None:
    ttft = options.ttft if options.ttft is not None or spec is None else spec.slo.ttft_p95_ms
    itl = options.itl if options.itl is not None or spec is None else spec.slo.itl_p95_ms
    if ttft is None and itl is None:
        return None
    if ttft is None or itl is None:
        raise UsageError("--ttft and --itl: an SLO has both; give the other one too.")
    return GenerationSlo(ttft_ms=ttft, itl_ms=itl)
