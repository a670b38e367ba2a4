"""What Application Auto Scaling scales here: instances of variants, copies of components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_cloud.application_autoscaling.records import Key
from local_cloud.protocol.errors import AwsError

if TYPE_CHECKING:
    from local_cloud.sagemaker.components.component import Component
    from local_cloud.sagemaker.components.components import Components
    from local_cloud.sagemaker.hosting.endpoint import Endpoint
    from local_cloud.sagemaker.hosting.endpoints import Endpoints


@dataclass(frozen=True, kw_only=True)
class ScaledResources:
    """The present account's endpoints and inference components, by the keys of their targets."""

    endpoints: Endpoints
    components: Components

    def state(self, key: Key) -> Endpoint | Component:
        """Return what has a status and a failure reason. Raises AwsError where it is gone."""
        if key.component is not None:
            return self.components.component(key.component)
        return self.endpoints.endpoint_named(key.endpoint)

    def capacity(self, key: Key) -> tuple[int, int]:
        """Return present and desired capacity. Raises AwsError for what does not exist."""
        if key.component is not None:
            component = self.components.component(key.component)
            return len(component.copies), component.desired
        counts: Mapping[str, tuple[int, int]] = self.endpoints.instances(key.endpoint)
        if key.variant not in counts:
            config = self.endpoints.endpoint_named(key.endpoint).config_name
            raise AwsError(
                "ValidationException",
                f'The variant name(s) "{key.variant}" is/are not present within endpoint '
                f'configuration "{config}".',
            )
        return counts[key.variant]

    def scale(self, key: Key, desired: int) -> None:
        """Begin to change a capacity. Raises AwsError where that is refused."""
        if key.component is not None:
            self.components.scale(key.component, desired)
        else:
            self.endpoints.scale(key.endpoint, key.variant, desired)
