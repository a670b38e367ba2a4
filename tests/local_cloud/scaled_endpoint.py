"""An endpoint of one variant that Application Auto Scaling scales."""

from tests.local_cloud.account import until

DIMENSION = "sagemaker:variant:DesiredInstanceCount"
PREDEFINED = {
    "PredefinedMetricSpecification": {
        "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
    }
}


class Scaled:
    """An endpoint of one variant, and how it is scaled."""

    def __init__(self, cloud, name):
        self.cloud, self.name = cloud, name
        self.client = cloud.client("application-autoscaling")
        self.of = {
            "ServiceNamespace": "sagemaker",
            "ResourceId": f"endpoint/{name}/variant/AllTraffic",
            "ScalableDimension": DIMENSION,
        }

    def register(self, low=1, high=3, **more):
        self.client.register_scalable_target(**self.of, MinCapacity=low, MaxCapacity=high, **more)

    def track(self, target, metric=PREDEFINED, name="invocations", **more):
        configuration = {
            "TargetValue": target,
            "ScaleOutCooldown": 0,
            "ScaleInCooldown": 60,
            **metric,
            **more,
        }
        return self.client.put_scaling_policy(
            **self.of,
            PolicyName=name,
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration=configuration,
        )

    def count(self):
        described = self.cloud.client("sagemaker").describe_endpoint(EndpointName=self.name)
        settled = described["EndpointStatus"] == "InService"
        return described["ProductionVariants"][0]["CurrentInstanceCount"] if settled else None

    def comes_to(self, count):
        return until(lambda: self.count() == count)

    def activities(self, **options):
        named = {field: self.of[field] for field in ("ServiceNamespace", "ResourceId")}
        return self.client.describe_scaling_activities(**named, **options)["ScalingActivities"]

    def last_activity(self):
        """The newest activity, once it has ended."""
        return until(
            lambda: (
                found[0]
                if (found := self.activities()) and found[0]["StatusCode"] != "InProgress"
                else None
            )
        )

    def alarms(self):
        prefix = f"TargetTracking-{self.of['ResourceId']}"
        found = self.cloud.client("cloudwatch").describe_alarms(AlarmNamePrefix=prefix)[
            "MetricAlarms"
        ]
        return {
            name.removeprefix(prefix).split("-")[1]: alarm
            for alarm in found
            for name in [alarm["AlarmName"]]
        }
