"""Subjects, requests and replies of recommendation jobs, of the shipped files."""

from __future__ import annotations

import dataclasses
import io
import json

from rich.console import Console

from roundhouse.load_test.inputs import Body, Inputs
from roundhouse.paths import Paths
from roundhouse.recommendation.options import RecommendOptions, require_bounds
from roundhouse.recommendation.payload import sample_payload
from roundhouse.recommendation.request import job_request
from roundhouse.recommendation.subject import find_subject
from roundhouse.report import Report
from roundhouse.session import Session
from tests.synth.deployments import locked

MODEL = "sentence-embedder"
IMAGES = {name: f"registry/{name}:1" for name in ("python-server", "python-server-gpu", "triton")}
ADVANCED = RecommendOptions(job_type="Advanced")


def inputs(*texts, content_type="application/json"):
    bodies = [Body(json.dumps({"inputs": [text]}).encode(), content_type) for text in texts]
    return Inputs(
        bodies=tuple(bodies),
        rows_per_request=1,
        rows="texts",
        description="a test's",
        sha256="0" * 64,
    )


def subject(*wanted, model=MODEL, environment="dev", is_load_test=True, change=lambda item: item):
    deployments = [change(deployment) for deployment in locked(environment)]
    return find_subject(deployments, model, wanted, is_load_test=is_load_test)


def request(options=ADVANCED, of=None, texts=("one", "two words")):
    is_load_test = options.job_type == "Advanced"
    if of is None:
        of = subject(*options.instance_types, is_load_test=is_load_test)
    require_bounds(options, of.instance_types)
    return job_request(of, options, sample_payload(inputs(*texts)), IMAGES)


def with_endpoint_fields(deployment, **fields):
    return dataclasses.replace(deployment, endpoint=deployment.endpoint.model_copy(update=fields))


def benchmark(instance_type="ml.g5.xlarge", variables=(), **metrics):
    """One of InferenceRecommendations; latencies in microseconds."""
    return {
        "RecommendationId": "job/1",
        "Metrics": {
            "MaxInvocations": 3000,
            "ModelLatency": 20_000,
            "CostPerHour": 1.2,
            "CostPerInference": 1.2 / 60 / 3000,
            **metrics,
        },
        "EndpointConfiguration": {"InstanceType": instance_type, "InitialInstanceCount": 1},
        "ModelConfiguration": {
            "EnvironmentParameters": [
                {"Key": key, "ValueType": "string", "Value": value} for key, value in variables
            ]
        },
    }


def session(tmp_path, environment, clients):
    """A session of fake clients, and what it prints."""
    printed = io.StringIO()
    paths = Paths(code=tmp_path, tree=tmp_path, build=tmp_path / "build")
    return (
        Session(
            paths=paths,
            environment=environment,
            variables={},
            clients=clients,
            run=None,
            report=Report(console=Console(file=printed, width=200)),
        ),
        printed,
    )
