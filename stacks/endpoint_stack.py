"""The stack of one endpoint, of engines or of a text generator: what its template says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aws_cdk import (
    Annotations,
    CfnCondition,
    CfnOutput,
    CfnParameter,
    CfnRule,
    CfnRuleAssertion,
    CfnWaitConditionHandle,
    Fn,
)
from constructs import Construct

from onboarding.deployment import DeployedEndpoint, Deployment
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.endpoint.findings import endpoint_notes, endpoint_warnings
from stacks.endpoint.template import endpoint_faults, endpoint_template
from stacks.generation.faults import generation_faults, generation_notes
from stacks.generation.template import generation_template
from stacks.resources import EnvironmentStack, add_resources, l1_value
from stacks.template import Template


class EndpointStackBase(EnvironmentStack):
    """A stack of one endpoint; one that cannot be deployed carries an error for each reason."""

    def __init__(self, scope: Construct, construct_id: str, *, endpoint: DeployedEndpoint) -> None:
        super().__init__(
            scope,
            construct_id,
            endpoint.environment,
            part=f"endpoint-{endpoint.name}",
            description=f"endpoint {endpoint.name}",
            is_protected=True,
            tags={"roundhouse-endpoint": endpoint.name},
        )

    def add_template(self, template: Template) -> None:
        """Add parameters, conditions, resources and outputs as a template has them."""
        for name, parameter in template.get("Parameters", {}).items():
            CfnParameter(
                self,
                name,
                type=parameter["Type"],
                default=parameter["Default"],
                allowed_values=parameter["AllowedValues"],
                description=parameter["Description"],
            )
        for name, condition in template.get("Conditions", {}).items():
            parameter, value = condition["Fn::Equals"]
            holds = Fn.condition_equals(Fn.ref(parameter["Ref"]), value)
            CfnCondition(self, name, expression=holds)
        add_resources(self, template["Resources"])
        for name, output in template["Outputs"].items():
            CfnOutput(self, name, value=l1_value(name, output["Value"]))

    def add_messages(self, warnings: Iterable[str], notes: Iterable[str]) -> None:
        """Show warnings and notes where the stack is synthesised."""
        for warning in warnings:
            Annotations.of(self).add_warning(warning)
        for note in notes:
            Annotations.of(self).add_info(note)

    def refuse(self, faults: tuple[str, ...], rule: str) -> None:
        """Add an error for each fault, and a rule that CloudFormation refuses for the first.

        An empty stack would make `cdk deploy --ignore-errors` delete the endpoint that still runs.
        """
        for fault in faults:
            Annotations.of(self).add_error(fault)
        CfnWaitConditionHandle(self, "NotBuilt")
        never = Fn.condition_equals(Fn.ref("AWS::Region"), "engine not built")
        assertion = CfnRuleAssertion(assert_=never, assert_description=faults[0])
        CfnRule(self, rule, assertions=[assertion])


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
            self.refuse(faults, "EngineIsBuilt")
            return
        self.add_template(endpoint_template(deployment, image_uris))
        self.add_messages(endpoint_warnings(deployment), endpoint_notes(deployment))


class GenerationEndpointStack(EndpointStackBase):
    """Deploys one text generator."""

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
            self.refuse(faults, "CheckpointIsBuilt")
            return
        self.add_template(generation_template(deployment, image_uris))
        self.add_messages((), generation_notes(deployment))
