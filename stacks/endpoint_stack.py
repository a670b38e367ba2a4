"""One endpoint: its role, model, endpoint config, endpoint, alarms and scaling, isolated from every other."""

from __future__ import annotations

from typing import Any

from aws_cdk import Annotations, Aws, CfnOutput, CfnResource, CfnRule, CfnRuleAssertion, Environment, Fn, Stack
from constructs import Construct

from onboarding import names
from onboarding.deployment import Deployment
from stacks.alarm_properties import alarms, rollback_alarm_ids
from stacks.capacity import instance_capacity
from stacks.content_name import content_name
from stacks.endpoint_properties import deployment_config, endpoint_config_properties, model_properties
from stacks.endpoint_statements import endpoint_statements
from stacks.engine_faults import engine_faults
from stacks.exact_role import exact_role
from stacks.scaling_properties import gpu_policy, invocations_policy, scalable_target_properties, scales


class EndpointStack(Stack):
    """Deploys one endpoint from the lock, or refuses to, with one error a fault.

    Properties are plain CloudFormation: the names of model and endpoint config are digests of what CloudFormation receives.
    """

    def __init__(self, scope: Construct, construct_id: str, *, deployment: Deployment, image_uri: str) -> None:
        environment = deployment.environment
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, f"endpoint-{deployment.name}"),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: endpoint {deployment.name} of {environment.name}",
            tags={"roundhouse-environment": environment.name, "roundhouse-endpoint": deployment.name},
        )
        self._deployment = deployment
        faults = engine_faults(deployment)
        if faults:
            self._refuse(faults)
        else:
            self._deploy(image_uri)
            self._warn()

    def _refuse(self, faults: tuple[str, ...]) -> None:
        for fault in faults:
            Annotations.of(self).add_error(fault)
        # An empty template would make `cdk deploy --ignore-errors` delete the endpoint that still answers; this one is refused.
        self._resource("NotBuilt", "AWS::CloudFormation::WaitConditionHandle", {})
        refusal = CfnRuleAssertion(assert_=Fn.condition_equals(Aws.REGION, "engine not built"), assert_description=faults[0])
        CfnRule(self, "EngineIsBuilt", assertions=[refusal])

    def _deploy(self, image_uri: str) -> None:
        deployment = self._deployment
        role = self._resource(
            "Role",
            "AWS::IAM::Role",
            exact_role(deployment.environment, service="sagemaker.amazonaws.com", statements=endpoint_statements(deployment)),
        )
        content = model_properties(deployment, image_uri)
        # The role is no part of the digest: its logical id never changes, and its statements change in place.
        model_name = content_name(self._endpoint_name, content)
        model = self._resource(
            "Model", "AWS::SageMaker::Model", {"ModelName": model_name, "ExecutionRoleArn": role.get_att("Arn"), **content}
        )
        content = endpoint_config_properties(deployment, model_name)
        config_name = content_name(self._endpoint_name, content)
        properties = {"EndpointConfigName": config_name, **content}
        config = self._resource("EndpointConfig", "AWS::SageMaker::EndpointConfig", properties)
        config.add_resource_dependency(model)
        self._outputs(self._endpoint(config, config_name))

    def _endpoint(self, config: CfnResource, config_name: str) -> CfnResource:
        deployment = self._deployment
        watching = alarms(deployment)
        resources = {alarm: self._resource(alarm, "AWS::CloudWatch::Alarm", properties) for alarm, properties in watching.items()}
        rollback = rollback_alarm_ids(deployment)
        rollback_names = [watching[alarm]["AlarmName"] for alarm in rollback]
        properties = {
            "EndpointName": self._endpoint_name,
            "EndpointConfigName": config_name,
            "DeploymentConfig": deployment_config(deployment.endpoint.rollout, rollback_names),
        }
        endpoint = self._resource("Endpoint", "AWS::SageMaker::Endpoint", properties)
        for dependency in (config, *(resources[alarm] for alarm in rollback)):
            endpoint.add_resource_dependency(dependency)
        if scales(deployment):
            self._scaling(endpoint)
        return endpoint

    def _scaling(self, endpoint: CfnResource) -> None:
        target = self._resource(
            "ScalableTarget", "AWS::ApplicationAutoScaling::ScalableTarget", scalable_target_properties(self._deployment)
        )
        target.add_resource_dependency(endpoint)
        policies = {"InvocationsPolicy": invocations_policy(self._deployment), "GpuPolicy": gpu_policy(self._deployment)}
        for construct_id, policy in policies.items():
            if policy is not None:
                properties, derivation = policy
                resource = self._resource(construct_id, "AWS::ApplicationAutoScaling::ScalingPolicy", properties)
                resource.add_metadata("Derivation", derivation)
                resource.add_resource_dependency(target)

    def _outputs(self, endpoint: CfnResource) -> None:
        CfnOutput(self, "EndpointName", value=endpoint.get_att("EndpointName").to_string())
        if self._deployment.multi_model:
            for target in self._deployment.targets:
                CfnOutput(self, output_id(target.model.name), value=names.target_model(target.engine_key))

    def _warn(self) -> None:
        endpoint, capacity = f"Endpoint '{self._deployment.name}'", instance_capacity(self._deployment)
        if capacity is None:
            Annotations.of(self).add_warning(
                f"{endpoint} has a target with no benchmark of its own engine, so nothing scales on invocations; build it again."
            )
        elif not capacity.within_slo:
            Annotations.of(self).add_warning(f"{endpoint} cannot keep its latency SLO: {capacity.derivation}.")

    @property
    def _endpoint_name(self) -> str:
        return names.endpoint_name(self._deployment.environment, self._deployment.name)

    def _resource(self, construct_id: str, resource_type: str, properties: dict[str, Any]) -> CfnResource:
        return CfnResource(self, construct_id, type=resource_type, properties=properties)


def output_id(model: str) -> str:
    """Output that names a target model: `TargetModelSentenceEmbedder`."""
    return "TargetModel" + "".join(part[:1].upper() + part[1:] for part in model.split("-"))
