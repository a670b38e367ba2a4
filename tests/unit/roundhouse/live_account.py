"""One endpoint that runs as its files say, until a test changes it."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

from botocore.exceptions import ClientError

from onboarding.names import endpoint_name, image_uri
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.deploy.stacks import endpoint_stack_name

AT = datetime(2026, 11, 23, 21, 5, tzinfo=UTC)


class Account:
    """SageMaker, CloudFormation and CloudWatch of an endpoint; AWS's fields are attributes."""

    def __init__(self, deployment):
        self.name = endpoint_name(deployment.environment, deployment.name)
        self.is_generator = isinstance(deployment, GenerationDeployment)
        self.exists, self.live, self.reason = True, "config-1", None
        self.deployed = {"EndpointConfig": "config-1", "Model": "model-1"}
        self.status, self.instances, self.variant = "InService", 1, "AllTraffic"
        self.stacks, self.alarms, self.more = [endpoint_stack_name(deployment)], [], []
        self.component = None
        if self.is_generator:
            self.key = deployment.entry.checkpoint_key
            self.instance_type, self.image = "ml.g5.2xlarge", None
            self.deployed["InferenceComponent"] = self.name
            self.component = {
                "InferenceComponentName": self.name,
                "InferenceComponentStatus": "InService",
                "LastModifiedTime": AT,
                "RuntimeConfig": {"CurrentCopyCount": 2, "DesiredCopyCount": 2},
                "Specification": {"ModelName": "model-1"},
            }
        else:
            (variant,) = deployment.variants
            self.variant, self.instance_type = variant.name, variant.instance_type.name
            self.key = variant.targets[0].engine_key
            self.image = image_uri(deployment.environment, "triton", "new")

    def __call__(self, service):
        return self

    def describe_endpoint(self, EndpointName):
        if not self.exists:
            refusal = {"Code": "ValidationException", "Message": "Could not find endpoint"}
            raise ClientError({"Error": refusal}, "DescribeEndpoint")
        variant = {
            "VariantName": self.variant,
            "CurrentInstanceCount": 0,
            "DesiredInstanceCount": self.instances,
            "DeployedImages": [] if self.image is None else [{"SpecifiedImage": self.image}],
        }
        return {
            "EndpointStatus": self.status,
            "EndpointConfigName": self.live,
            "ProductionVariants": [variant],
            **({} if self.reason is None else {"FailureReason": self.reason}),
        }

    def describe_endpoint_config(self, EndpointConfigName):
        spec = {"VariantName": self.variant, "InstanceType": self.instance_type}
        model = {} if self.component is not None else {"ModelName": "m"}
        return {"ProductionVariants": [{**spec, **model}]}

    def describe_model(self, ModelName):
        if self.is_generator:
            source = {"S3Uri": f"s3://bucket/checkpoints/{self.key}/"}
            return {"PrimaryContainer": {"ModelDataSource": {"S3DataSource": source}}}
        url = f"s3://bucket/engines/{self.key}/model.tar.gz"
        return {"PrimaryContainer": {"ModelDataUrl": url}}

    def describe_inference_component(self, InferenceComponentName):
        every = [self.component, *self.more]
        return next(i for i in every if i["InferenceComponentName"] == InferenceComponentName)

    def describe_stack_resources(self, StackName):
        place = "arn:aws:sagemaker:us-east-1:111122223333:any"
        return {
            "StackResources": [
                {"ResourceType": f"AWS::SageMaker::{kind}", "PhysicalResourceId": f"{place}/{name}"}
                for kind, name in self.deployed.items()
            ]
        }

    def get_paginator(self, operation):
        return SimpleNamespace(paginate=getattr(self, f"_{operation}"))

    def _describe_alarms(self, StateValue):
        assert StateValue == "ALARM"
        yield {"MetricAlarms": self.alarms}

    def _list_inference_components(self, EndpointNameEquals):
        yield {"InferenceComponents": [i for i in (self.component, *self.more) if i is not None]}

    def _list_stacks(self):
        for name in self.stacks:
            yield {"StackSummaries": [{"StackName": name, "StackStatus": "UPDATE_COMPLETE"}]}

    def watch(self, name):
        """Add an alarm of the endpoint that is in ALARM."""
        dimension = {"Name": "EndpointName", "Value": self.name}
        self.alarms.append({"AlarmName": name, "Dimensions": [dimension]})
