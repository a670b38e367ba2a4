"""Models and endpoint configs, as they were created: what endpoints are made from."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from local_cloud.ministack.account import Scoped, sagemaker_arn
from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.hosting.instance import ServerError

Record = Mapping[str, Any]


class Records:
    """All models and endpoint configs of all accounts, by name."""

    def __init__(self) -> None:
        self.models: MutableMapping[str, Record] = Scoped()
        self.configs: MutableMapping[str, Record] = Scoped()

    def config(self, name: str) -> Record:
        """The endpoint config of a name, or SageMaker's refusal."""
        config = self.configs.get(name)
        if config is None:
            raise validation_error(
                f'Could not find endpoint configuration "{sagemaker_arn("endpoint-config", name)}".'
            )
        return config

    def model(self, name: str) -> Record:
        """The model of a name, or SageMaker's refusal."""
        model = self.models.get(name)
        if model is None:
            raise validation_error(f'Could not find model "{sagemaker_arn("model", name)}".')
        return model

    def startable_model(self, name: str) -> Record:
        """The model of a name, or the failure reason of the endpoint that wants to start it."""
        model = self.models.get(name)
        if model is None:
            raise ServerError(f'Could not find model "{sagemaker_arn("model", name)}".')
        return model
