"""The stack of one endpoint: its role, models, endpoint config, endpoint, alarms and scaling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aws_cdk import (
    Annotations,
    CfnCondition,
    CfnOutput,
    CfnParameter,
    CfnRule,
    CfnRuleAssertion,
    CfnWaitConditionHandle,
    Environment,
    Fn,
    Stack,
)
from constructs import Construct

from onboarding import names
from onboarding.deployment import DeployedEndpoint, Deployment
from stacks.endpoint.properties import RETAINED, RETAINS
from stacks.endpoint.template import (
    endpoint_faults,
    endpoint_outputs,
    endpoint_resources,
    retains_counts,
)
from stacks.endpoint.warnings import endpoint_notes, endpoint_warnings
from stacks.resources import add_resources, l1_value


class EndpointStackBase(Stack):
    """A stack of one endpoint; one that cannot be deployed carries an error for each reason."""

    def __init__(self, scope: Construct, construct_id: str, *, endpoint: DeployedEndpoint) -> None:
        environment = endpoint.environment
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, f"endpoint-{endpoint.name}"),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: endpoint {endpoint.name} of {environment.name}",
            tags={
                "roundhouse-environment": environment.name,
                "roundhouse-endpoint": endpoint.name,
            },
            termination_protection=True,
        )

    def add_outputs(self, outputs: Mapping[str, Mapping[str, Any]]) -> None:
        """Add outputs as a template has them."""
        for output, value in outputs.items():
            CfnOutput(self, output, value=l1_value(output, value["Value"]))

    def add_retention(self, parameter: str, condition: str, value: str, description: str) -> None:
        """Add a parameter by which an update keeps the counts that it finds.

        A first deployment has none. `roundhouse deploy` sets it with the first update that would
        change them; CloudFormation keeps its value from then on. `condition`: that it is `value`.
        """
        retains = CfnParameter(
            self,
            parameter,
            type="String",
            default="false",
            allowed_values=["false", "true"],
            description=description,
        )
        CfnCondition(
            self, condition, expression=Fn.condition_equals(retains.value_as_string, value)
        )

    def add_messages(
        self, faults: Iterable[str], warnings: Iterable[str], notes: Iterable[str]
    ) -> None:
        """Show errors, warnings and notes where the stack is synthesised."""
        for fault in faults:
            Annotations.of(self).add_error(fault)
        for warning in warnings:
            Annotations.of(self).add_warning(warning)
        for note in notes:
            Annotations.of(self).add_info(note)

    def refuse(self, fault: str, rule: str = "EngineIsBuilt") -> None:
        """Add a rule that CloudFormation refuses, with the fault as its reason.

        An empty stack would make `cdk deploy --ignore-errors` delete the endpoint that still runs.
        """
        CfnWaitConditionHandle(self, "NotBuilt")
        never = Fn.condition_equals(Fn.ref("AWS::Region"), "engine not built")
        CfnRule(
            self,
            rule,
            assertions=[CfnRuleAssertion(assert_=never, assert_description=fault)],
        )


class EndpointStack(EndpointStackBase):
    """Deploys one endpoint of engines."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        image_uris: Mapping[str, str],
    ) -> None:
        super().__init__(scope, construct_id, endpoint=deployment)
        faults = endpoint_faults(deployment)
        if faults:
            self.refuse(faults[0])
            self.add_messages(faults, (), ())
            return
        resources = endpoint_resources(deployment, image_uris)
        if retains_counts(resources):
            description = "Updates keep instance counts; false in the first deployment"
            self.add_retention(RETAINS, RETAINED, "true", description)
        add_resources(self, resources)
        self.add_outputs(endpoint_outputs(deployment))
        self.add_messages((), endpoint_warnings(deployment), endpoint_notes(deployment))
