"""A VPC that is there, and the VPC endpoints that its isolated subnets need."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Annotations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from onboarding import arns
from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from onboarding.platform import aws_partition
from roundhouse_cdk.statements import action_names, source_bucket_arns


class Network(Construct):
    """Names an existing VPC, its private subnets and security groups; it deploys nothing."""

    def __init__(self, scope: Construct, construct_id: str, *, network: NetworkSpec) -> None:
        super().__init__(scope, construct_id)
        self.vpc = ec2.Vpc.from_vpc_attributes(
            self, "Vpc", vpc_id=network.vpc_id, availability_zones=["unknown"]
        )
        subnets = [ec2.Subnet.from_subnet_id(self, name, name) for name in network.subnet_ids]
        for subnet in subnets:
            Annotations.of(subnet).acknowledge_warning(
                "@aws-cdk/aws-ec2:noSubnetRouteTableId", "its route table is not needed here"
            )
        self.subnets = ec2.SubnetSelection(subnets=subnets)
        self.routes: list[ec2.ISubnet] = [
            ec2.Subnet.from_subnet_attributes(
                self, table, subnet_id=network.subnet_ids[0], route_table_id=table
            )
            for table in network.route_table_ids
        ]
        """One for each route table, which is all that a gateway endpoint asks of a subnet."""
        self.security_groups = [
            ec2.SecurityGroup.from_security_group_id(self, name, name, mutable=False)
            for name in network.security_group_ids
        ]


INTERFACES = {
    "EcrApi": "ecr.api",
    "EcrDkr": "ecr.dkr",
    "Kms": "kms",
    "Logs": "logs",
    "Monitoring": "monitoring",
    "SagemakerApi": "sagemaker.api",
    "SagemakerRuntime": "sagemaker.runtime",
    "Sts": "sts",
}
"""Services, by the beginning of the construct id."""


@dataclass(frozen=True, kw_only=True)
class VpcEndpointsProps:
    """`network` names VPC, subnets, security groups, and the route tables of the S3 endpoint."""

    environment: EnvironmentSpec
    network: NetworkSpec


class VpcEndpoints(Construct):
    """Deploys a gateway endpoint to S3, and an interface endpoint of every other service.

    Raises ValueError for a network without route tables: S3 would not be reached.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: VpcEndpointsProps) -> None:
        super().__init__(scope, construct_id)
        environment = self._environment = props.environment
        if not props.network.route_table_ids:
            raise ValueError(
                f"{self.node.path}: no route table for the S3 endpoint; allowed: one or more; name"
                " those of the subnets in network.route_table_ids"
            )
        network = Network(self, "Network", network=props.network)
        self.s3 = ec2.GatewayVpcEndpoint(
            self,
            "S3Endpoint",
            vpc=network.vpc,
            service=ec2.GatewayVpcEndpointAwsService.S3,
            subnets=[ec2.SubnetSelection(subnets=network.routes)],
        )
        self._allow_s3()
        secrets = {"SecretsManager": "secretsmanager"} if environment.source_secrets.secrets else {}
        self.interfaces = {
            service: ec2.InterfaceVpcEndpoint(
                self,
                f"{name}Endpoint",
                vpc=network.vpc,
                service=ec2.InterfaceVpcEndpointAwsService(service),
                subnets=network.subnets,
                security_groups=network.security_groups,
                private_dns_enabled=True,
                open=False,
            )
            for name, service in (INTERFACES | secrets).items()
        }
        for endpoint in self.interfaces.values():
            endpoint.add_to_policy(self._statement("OfThisAccount", "*", ["*"], own=True))

    def _allow_s3(self) -> None:
        """Allow S3 for this environment: nothing here carries data to a stranger's bucket.

        Every layer of every image comes from ECR's own bucket, by a signed address. The first
        process of a build's container fetches its agent from CodeBuild's own bucket, by way of the
        build's network: its address stands in a build's variables (CODEBUILD_ACTION_RUNNER_URL) and
        process list (aws-codebuild-docker-images, issue 254); no page of AWS names it.
        """
        environment = self._environment
        aws, region = f"arn:{aws_partition(environment.region)}:s3:::", environment.region
        own = [arns.bucket(environment), arns.bucket_object(environment, "*")]
        sources = [
            arn
            for bucket in environment.source_buckets
            for arn in source_bucket_arns(environment, bucket)
        ]
        actions = "s3:AbortMultipartUpload GetBucketLocation GetObject GetObjectVersion ListBucket"
        layers = [f"{aws}prod-{region}-starport-layer-bucket/*"]
        agent = [f"{aws}codefactory-{region}-prod-default-build-agent-executor/*"]
        for statement in (
            self._statement("Artifacts", f"{actions} PutObject", own, own=True),
            self._statement("ImageLayers", "s3:GetObject", layers),
            self._statement("BuildAgent", "s3:GetObject", agent),
        ):
            self.s3.add_to_policy(statement)
        if sources:
            self.s3.add_to_policy(
                self._statement("Sources", "s3:GetObject ListBucket", sources, own=True)
            )

    def _statement(
        self, sid: str, actions: str, resources: list[str], *, own: bool = False
    ) -> iam.PolicyStatement:
        """Allow everybody, or with `own` this account's identities."""
        account = {"StringEquals": {"aws:PrincipalAccount": self._environment.account}}
        return iam.PolicyStatement(
            sid=sid,
            principals=[iam.StarPrincipal()],
            actions=["*"] if actions == "*" else action_names(actions),
            resources=resources,
            conditions=account if own else None,
        )
