"""The stack of one endpoint: its role, models, endpoint config, endpoint, alarms and scaling."""

from __future__ import annotations

from collections.abc import Mapping

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
from onboarding.deployment import Deployment
from stacks.endpoint.properties import RETAINED, RETAINS
from stacks.endpoint.template import (
    endpoint_faults,
    endpoint_outputs,
    endpoint_resources,
    retains_counts,
)
from stacks.endpoint.warnings import endpoint_notes, endpoint_warnings
from stacks.resources import add_resources, l1_value


class EndpointStack(Stack):
    """Deploys one endpoint; one that cannot be deployed carries an error for each reason."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        image_uris: Mapping[str, str],
    ) -> None:
        environment = deployment.environment
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, f"endpoint-{deployment.name}"),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: endpoint {deployment.name} of {environment.name}",
            tags={
                "roundhouse-environment": environment.name,
                "roundhouse-endpoint": deployment.name,
            },
            termination_protection=True,
        )
        faults = endpoint_faults(deployment)
        if faults:
            self._refuse(faults[0])
        else:
            resources = endpoint_resources(deployment, image_uris)
            if retains_counts(resources):
                self._add_retention()
            add_resources(self, resources)
            for output, value in endpoint_outputs(deployment).items():
                CfnOutput(self, output, value=l1_value(output, value["Value"]))
        for fault in faults:
            Annotations.of(self).add_error(fault)
        for warning in () if faults else endpoint_warnings(deployment):
            Annotations.of(self).add_warning(warning)
        for note in () if faults else endpoint_notes(deployment):
            Annotations.of(self).add_info(note)

    def _add_retention(self) -> None:
        """Add the parameter by which an update keeps the instance counts that it finds.

        A first deployment has none. `roundhouse deploy` sets it with the first update that brings
        another endpoint config; CloudFormation keeps its value from then on.
        """
        retains = CfnParameter(
            self,
            RETAINS,
            type="String",
            default="false",
            allowed_values=["false", "true"],
            description="Updates keep instance counts; false in the first deployment",
        )
        CfnCondition(
            self, RETAINED, expression=Fn.condition_equals(retains.value_as_string, "true")
        )

    def _refuse(self, fault: str) -> None:
        """Add a rule that CloudFormation refuses, with the fault as its reason.

        An empty stack would make `cdk deploy --ignore-errors` delete the endpoint that still runs.
        """
        CfnWaitConditionHandle(self, "NotBuilt")
        never = Fn.condition_equals(Fn.ref("AWS::Region"), "engine not built")
        CfnRule(
            self,
            "EngineIsBuilt",
            assertions=[CfnRuleAssertion(assert_=never, assert_description=fault)],
        )
