"""Namespaces of the metrics that SageMaker publishes of endpoints."""

from __future__ import annotations

INVOCATIONS, HOST = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
COMPONENTS = "/aws/sagemaker/InferenceComponents"
