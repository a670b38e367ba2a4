"""The stack of a text generator: its role, model, endpoint, inference component and scaling."""

from __future__ import annotations

from collections.abc import Mapping

from constructs import Construct

from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.endpoint.properties import RETAINED, RETAINS
from stacks.endpoint_stack import EndpointStackBase
from stacks.generation.faults import generation_faults, generation_notes
from stacks.generation.properties import KEEPS_COPIES, SETS_COPIES
from stacks.generation.sizes import is_component, scales
from stacks.generation.template import generation_outputs, generation_resources
from stacks.resources import add_resources


class GenerationEndpointStack(EndpointStackBase):
    """Deploys one text generator; one that cannot be deployed carries an error for each reason."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: GenerationDeployment,
        image_uris: Mapping[str, str],
    ) -> None:
        super().__init__(scope, construct_id, endpoint=deployment)
        faults = generation_faults(deployment)
        if faults:
            self.refuse(faults[0], "CheckpointIsBuilt")
            self.add_messages(faults, (), ())
            return
        if scales(deployment):
            if is_component(deployment):
                what = "Updates keep the number of copies; false in the first deployment"
                self.add_retention(KEEPS_COPIES, SETS_COPIES, "false", what)
            else:
                what = "Updates keep instance counts; false in the first deployment"
                self.add_retention(RETAINS, RETAINED, "true", what)
        add_resources(self, generation_resources(deployment, image_uris))
        self.add_outputs(generation_outputs(deployment))
        self.add_messages((), (), generation_notes(deployment))
