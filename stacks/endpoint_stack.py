"""One endpoint: its role, models, endpoint config, endpoint, alarms and scaling, isolated from
every other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from aws_cdk import Annotations, Environment, Stack
from constructs import Construct

from onboarding import names
from onboarding.deployment import Deployment
from stacks.endpoint.template import endpoint_faults, endpoint_template
from stacks.endpoint.warnings import endpoint_warnings
from stacks.template_synthesizer import TemplateSynthesizer
from stacks.template_text import DEFAULT_QUALIFIER


class EndpointStack(Stack):
    """Hangs the template of one endpoint; an endpoint that cannot be deployed carries an error for
    each reason.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        image_uris: Mapping[str, str],
        qualifier: str = DEFAULT_QUALIFIER,
    ) -> None:
        environment = deployment.environment
        synthesizer = TemplateSynthesizer(
            partial(endpoint_template, deployment, image_uris), qualifier
        )
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, f"endpoint-{deployment.name}"),
            env=Environment(account=environment.account, region=environment.region),
            tags={
                "roundhouse-environment": environment.name,
                "roundhouse-endpoint": deployment.name,
            },
            synthesizer=synthesizer,
        )
        synthesizer.stack = self
        faults = endpoint_faults(deployment)
        for fault in faults:
            Annotations.of(self).add_error(fault)
        for warning in () if faults else endpoint_warnings(deployment):
            Annotations.of(self).add_warning(warning)
