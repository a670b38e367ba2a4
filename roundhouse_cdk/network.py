"""A VPC that is there, as the CDK's constructs take it."""

from __future__ import annotations

from aws_cdk import Annotations
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from onboarding.environment_spec import NetworkSpec


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
