"""What is loaded: a deployed endpoint or a server's URL, with the inputs and the SLO of its model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from roundhouse.errors import RoundhouseError
from roundhouse.load_test.asked import Asked
from roundhouse.load_test.report.circumstances import cores
from roundhouse.load_test.requests.destination import Destination, server_url
from roundhouse.load_test.requests.inputs import inputs
from roundhouse.load_test.traffic import latency_stop
from roundhouse.load_test.wishes import Wishes, phases, require_sound
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.text import choices

if TYPE_CHECKING:
    from onboarding.model_spec import ModelSpec
    from onboarding.tree import Tree

TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"


def asked(at: Paths, report: Report, wishes: Wishes) -> Asked:
    """The whole load test. Raises RoundhouseError, NotReadyError, FaultsError."""
    require_sound(wishes)
    made = phases(wishes)
    stop = None if wishes.stop is None else latency_stop(wishes.stop)
    subject, destination, model, slo = (
        _server(at, wishes) if wishes.url is not None else _endpoint(at, report, wishes)
    )
    slo = slo if wishes.slo_ms is None else wishes.slo_ms
    if slo is None and not made:
        raise RoundhouseError(
            "The search for the saturation point needs an SLO; give --slo MILLISECONDS, or a load with --rate."
        )
    return Asked(
        subject=subject,
        destination=destination,
        inputs=inputs(
            _input_file(at, wishes, model),
            rows_per_request=wishes.rows_per_request,
            binary=wishes.binary,
        ),
        slo_ms=slo,
        phases=made,
        first_rate=wishes.first_rate,
        step_seconds=wishes.step_seconds,
        warm_up_seconds=wishes.warm_up_seconds,
        stop=stop,
        most_requests=wishes.most_requests,
        arrivals=wishes.arrivals,
        seed=wishes.seed,
        workers=wishes.workers,
        most_workers=max(1, cores() - 1),
        most_connections=wishes.most_connections,
        timeout_seconds=wishes.timeout_seconds,
        expected_interval_ms=wishes.expected_interval_ms,
        command=wishes.command,
    )


def _endpoint(
    at: Paths, report: Report, wishes: Wishes
) -> tuple[str, Destination, ModelSpec, float | None]:
    """A SageMaker endpoint's address is boto3's own, so that the local cloud and VPC endpoints are
    found as boto3 finds them.
    """
    from roundhouse import invocation
    from roundhouse.session import open_session

    assert wishes.endpoint is not None and wishes.environment is not None
    session = open_session(at, report, wishes.environment)
    deployments = session.deployments()
    to, target = invocation.address(deployments, wishes.endpoint, wishes.model)
    slo = next(each.endpoint.latency_slo_ms for each in deployments if target in each.targets)
    url = f"{session.clients('sagemaker-runtime').meta.endpoint_url}/endpoints/{to.endpoint}/invocations"
    headers = () if to.target_model is None else ((TARGET_MODEL, to.target_model),)
    subject = to.endpoint if to.target_model is None else f"{to.endpoint}, {target.model.name}"
    return (
        subject,
        Destination(url=url, headers=headers, region=session.environment.region),
        target.model,
        slo,
    )


def _server(at: Paths, wishes: Wishes) -> tuple[str, Destination, ModelSpec | None, float | None]:
    assert wishes.url is not None
    url = server_url(wishes.url)
    if wishes.model is None:
        return urlsplit(url).netloc, Destination(url=url), None, None
    from roundhouse.session import valid_tree

    tree = valid_tree(at)
    if wishes.model not in tree.models:
        raise RoundhouseError(
            f"--model {wishes.model}: no such model; {choices(wishes.model, sorted(tree.models))}"
        )
    model = tree.models[wishes.model]
    return f"{model.name} at {urlsplit(url).netloc}", Destination(url=url), model, _slo(tree, model)


def _slo(tree: Tree, model: ModelSpec) -> float | None:
    """Of the endpoint that the model answers behind: its own, a shared one, or that of the model it
    joins.
    """
    from onboarding.model_spec import JoinSpec

    place = (
        tree.models[model.endpoint.joins].endpoint
        if isinstance(model.endpoint, JoinSpec)
        else model.endpoint
    )
    if isinstance(place, str):
        shared = tree.endpoints.get(place)
        return None if shared is None else shared.latency_slo_ms
    return None if isinstance(place, JoinSpec) else place.latency_slo_ms


def _input_file(at: Paths, wishes: Wishes, model: ModelSpec | None) -> Path:
    """What was given, else the samples that the model is judged by: a real mix of lengths."""
    if wishes.input is not None:
        return wishes.input
    if model is None:
        raise RoundhouseError(
            "--url: knows no inputs; give --input FILE, or --model NAME for those of models/NAME.yaml."
        )
    return at.tree / model.accuracy.dataset
