"""Documents against the shapes of botocore's service model of SageMaker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roundhouse.errors import RoundhouseError


def require_valid(operation: str, shape: str, document: Mapping[str, Any]) -> None:
    """Raise RoundhouseError where a document is not what SageMaker's service model says.

    `shape`: input_shape or output_shape of the operation.
    """
    import botocore.session
    from botocore.validate import ParamValidator

    model = botocore.session.get_session().get_service_model("sagemaker")
    report = ParamValidator().validate(document, getattr(model.operation_model(operation), shape))
    if report.has_errors():
        faults = " ".join(report.generate_report().splitlines())
        raise RoundhouseError(f"This is no {operation} of SageMaker: {faults}")
