"""The stack of one endpoint, of engines or of a text generator: what its template says."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from aws_cdk import (
    Annotations,
    App,
    BootstraplessSynthesizer,
    CfnOutput,
    CfnResource,
    CfnRule,
    CfnRuleAssertion,
    CfnWaitConditionHandle,
    Fn,
    Stack,
)
from aws_cdk import aws_sns as sns
from constructs import Construct

from onboarding import arns
from onboarding.deployment import Deployment
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse_cdk.component_endpoint import ComponentEndpoint, TextGenerationEndpoint
from roundhouse_cdk.endpoint_metrics import (
    EndpointAlarms,
    EndpointAlarmsProps,
    EndpointScaling,
    EndpointScalingProps,
)
from roundhouse_cdk.hosting import HostedEndpoint
from roundhouse_cdk.realtime_endpoint import MultiModelEndpoint, RealtimeEndpoint
from stacks.alarms import endpoint_alarms
from stacks.endpoint.findings import endpoint_faults, endpoint_notes, endpoint_warnings
from stacks.endpoint.props import (
    component_props,
    endpoint_outputs,
    endpoint_props,
    generation_props,
)
from stacks.environment_stack import OWN, EnvironmentStack, keep_ids
from stacks.scaling import scaled_counts

CONTEXT = {"@aws-cdk/aws-iam:minimizePolicies": True, "@aws-cdk/core:enablePartitionLiterals": True}
"""What of cdk.json's context decides a template."""

Template = dict[str, Any]
"""`Resources`, `Outputs` and the like, as CloudFormation spells them."""


def endpoint_template(
    endpoint: Deployment | GenerationDeployment, image_uris: Mapping[str, str]
) -> Template:
    """Return the template of an endpoint's stack, as the CDK writes it to deploy it.

    One that cannot be deployed has no resource.
    """
    if endpoint_faults(endpoint):
        return {"Resources": {}}
    return synthesize(
        lambda app: EndpointStack(app, "Endpoint", deployment=endpoint, image_uris=image_uris)
    )


def synthesize(make_stack: Callable[[App], Stack]) -> Template:
    """Return the template of the one stack that is made in an app."""
    with tempfile.TemporaryDirectory(prefix="roundhouse-synth-") as folder:
        app = App(
            outdir=folder,
            context=CONTEXT,
            default_stack_synthesizer=BootstraplessSynthesizer(),
            analytics_reporting=False,
            stack_traces=False,
            tree_metadata=False,
        )
        stack = make_stack(app)
        template: Template = app.synth().get_stack_by_name(stack.stack_name).template
        return template


class EndpointStack(EnvironmentStack):
    """Deploys one endpoint; one that cannot be deployed carries an error for each reason."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment | GenerationDeployment,
        image_uris: Mapping[str, str],
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            deployment.environment,
            part=f"endpoint-{deployment.name}",
            description=f"endpoint {deployment.name}",
            is_protected=True,
            tags={"roundhouse-endpoint": deployment.name},
        )
        if faults := endpoint_faults(deployment):
            is_engine = isinstance(deployment, Deployment)
            self._refuse(faults, "EngineIsBuilt" if is_engine else "CheckpointIsBuilt")
            return
        outputs = self._add_endpoint(deployment, image_uris)
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
        annotations = Annotations.of(self)
        for warning in endpoint_warnings(deployment):
            annotations.add_warning(warning)
        for note in endpoint_notes(deployment):
            annotations.add_info(note)

    def _add_endpoint(
        self, deployment: Deployment | GenerationDeployment, image_uris: Mapping[str, str]
    ) -> dict[str, str]:
        """Add the endpoint, with alarms and scaling that wait for what answers; return outputs.

        What answers waits for the alarms that take a rollout back.
        """
        endpoint: HostedEndpoint
        outputs: dict[str, str] = {}
        if isinstance(deployment, GenerationDeployment):
            generated = generation_props(deployment, image_uris)
            endpoint = TextGenerationEndpoint(self, OWN, props=generated)
        elif deployment.is_component:
            copied = component_props(deployment, image_uris)
            endpoint = ComponentEndpoint(self, OWN, props=copied)
        else:
            props, outputs = endpoint_props(deployment, image_uris), endpoint_outputs(deployment)
            kind = MultiModelEndpoint if deployment.multi_model else RealtimeEndpoint
            endpoint = kind(self, OWN, props=props)
        keep_ids(endpoint.supports)
        server: CfnResource = endpoint.endpoint
        if isinstance(endpoint, ComponentEndpoint):
            server, outputs = endpoint.component, {"InferenceComponentName": endpoint.endpoint_name}
        topic_arn = arns.alarm_topic(deployment.environment)
        topic = sns.Topic.from_topic_arn(self, "AlarmTopic", topic_arn)
        alarm_props = EndpointAlarmsProps(alarms=endpoint_alarms(deployment), topic=topic)
        alarms = EndpointAlarms(endpoint, OWN, props=alarm_props)
        if alarms.rollback:
            server.node.add_dependency(*alarms.rollback)
        alarms.others.node.add_dependency(server)
        counts = EndpointScalingProps(counts=scaled_counts(deployment), server=server)
        keep_ids(EndpointScaling(self, "Scaling", props=counts).resources)
        return {"EndpointName": endpoint.endpoint.attr_endpoint_name, **outputs}

    def _refuse(self, faults: tuple[str, ...], rule: str) -> None:
        """Add an error for each fault, and a rule that CloudFormation refuses for the first.

        An empty stack would make `cdk deploy --ignore-errors` delete the endpoint that still runs.
        """
        for fault in faults:
            Annotations.of(self).add_error(fault)
        CfnWaitConditionHandle(self, "NotBuilt")
        never = Fn.condition_equals(Fn.ref("AWS::Region"), "engine not built")
        assertion = CfnRuleAssertion(assert_=never, assert_description=faults[0])
        CfnRule(self, rule, assertions=[assertion])
