"""Checks of roles: what their endpoint, build, training job or state machine needs is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from template_rules.hosting import (
    ENDPOINT,
    MACHINE,
    MODEL,
    PROJECT,
    config_of,
    containers,
    endpoints_of,
    is_multi_model,
    rollback_alarms,
)
from template_rules.policies import (
    ROLE,
    Statement,
    covers,
    identity_statements,
    resource_statements,
    role_statements,
    trust_statements,
    trusts,
)
from template_rules.rule import rule
from template_rules.rules.needs import Need, Place, lacking_actions
from template_rules.templates import Assembly, Finding, Resource
from template_rules.values import at, boolean, fields, is_known, known_text, texts

USERS = {
    MODEL: ("ExecutionRoleArn", "sagemaker"),
    PROJECT: ("ServiceRole", "codebuild"),
    MACHINE: ("RoleArn", "states"),
    "AWS::Lambda::Function": ("Role", "lambda"),
}
"""Type -> the property that names its role, and the service that assumes it."""


@rule("E9700", "A role lets the service that uses it assume it, for this account")
def role_trust(assembly: Assembly) -> Iterator[Finding]:
    for resource in assembly.of_type(*USERS):
        path, service = USERS[resource.type]
        value = resource.properties.get(path)
        role = assembly.find(value, ROLE)
        text = known_text(value)
        if role is None:
            account = resource.template.stack.account
            match = re.fullmatch(r"arn:[^:]*:iam::(\d{12}):role/.+", text or "")
            named = resource.type != PROJECT and text is not None and match is None
            foreign = match is not None and account is not None and match[1] != account
            if named or foreign:
                what = "the role is named by its ARN, and is of the stack's own account"
                yield resource.problem(path, what, "name a role of this account", value=value)
            continue
        account = resource.template.stack.account
        context = {} if account is None else {"aws:SourceAccount": account}
        if role.name == value and resource.type != PROJECT:
            what = "Ref of a role is its name, and an ARN is needed"
            yield resource.problem(path, what, f"write Fn::GetAtt [{role.logical_id}, Arn]")
        elif not trusts(role, service, context):
            what = f"role {role.logical_id} does not let {service} assume it for this account"
            way_out = f"trust {service}.amazonaws.com, with aws:SourceAccount of this account"
            yield resource.problem(path, what, way_out, value=value)


@rule("E9701", "A model's role may do what its endpoints need")
def model_role(assembly: Assembly) -> Iterator[Finding]:
    for model in assembly.of_type(MODEL):
        needs = [*_model_needs(assembly, model)]
        for endpoint in endpoints_of(assembly, model):
            needs += _endpoint_needs(assembly, model, endpoint)
        yield from lacking_actions(assembly, model, "ExecutionRoleArn", needs)


def _model_needs(assembly: Assembly, model: Resource) -> Iterator[Need]:
    place = Place(assembly=assembly, resource=model)
    for _, container in containers(model):
        yield from place.image(container.get("Image"), "to pull the image")
        source = at(container, "ModelDataSource", "S3DataSource", "S3Uri")
        uri = container.get("ModelDataUrl", source)
        if isinstance(uri, str):
            under = is_multi_model(model) or uri.endswith("/")
            whole, reason = f"{uri}*" if under else uri, "to read the model data"
            yield from place.objects(whole, read=True, reason=reason, under=under)
    yield from place.network(model.properties.get("VpcConfig"), "to attach to the VPC")


def _endpoint_needs(assembly: Assembly, model: Resource, endpoint: Resource) -> Iterator[Need]:
    place, config = Place(assembly=assembly, resource=model), config_of(assembly, endpoint)
    group = f"/aws/sagemaker/Endpoints/{endpoint.name}"
    yield from place.logs(group, reason="to write the container's log")
    namespace = {"cloudwatch:namespace": "/aws/sagemaker/Endpoints"}
    reason = "to publish the hosts' metrics"
    yield Need(action="cloudwatch:PutMetricData", arn="*", reason=reason, context=namespace)
    for _, name in rollback_alarms(endpoint):
        arn = place.arn("cloudwatch", f"alarm:{name}")
        reason = "to look at the rollback alarms"
        yield Need(action="cloudwatch:DescribeAlarms", arn=arn, reason=reason)
    if config is None:
        return
    capture = fields(config.properties.get("DataCaptureConfig"))
    if capture and boolean(capture.get("EnableCapture", True)) is not False:
        uri = f"{str(capture.get('DestinationS3Uri')).rstrip('/')}/{endpoint.name}/AllTraffic/*"
        key, reason = capture.get("KmsKeyId"), "to write captured data"
        yield from place.objects(uri, read=False, reason=reason, key=key)
    output = fields(config.at("AsyncInferenceConfig.OutputConfig"))
    for name in ("S3OutputPath", "S3FailurePath"):
        if isinstance(output.get(name), str):
            uri, key = f"{output[name].rstrip('/')}/*", output.get("KmsKeyId")
            reason = "to write asynchronous responses"
            yield from place.objects(uri, read=False, reason=reason, key=key)
    for topic in fields(output.get("NotificationConfig")).values():
        if isinstance(topic, str):
            yield from place.topic(topic, "to announce asynchronous responses")
    if "KmsKeyId" in config.properties:
        key, reason = config.properties["KmsKeyId"], "to encrypt the hosts' volumes"
        yield from place.key(key, ("kms:CreateGrant",), None, reason)


@rule("E9702", "An asynchronous endpoint's role may read requests, not archives alone")
def asynchronous_requests(assembly: Assembly) -> Iterator[Finding]:
    for endpoint in assembly.of_type(ENDPOINT):
        config = config_of(assembly, endpoint)
        if config is None or "AsyncInferenceConfig" not in config.properties:
            continue
        for model in assembly.of_type(MODEL):
            role = assembly.find(model.properties.get("ExecutionRoleArn"), ROLE)
            if endpoint not in endpoints_of(assembly, model) or role is None:
                continue
            data = [str(container.get("ModelDataUrl")) for _, container in containers(model)]
            archives = [f":::{url.removeprefix('s3://')}" for url in data]
            readable = _readable(role_statements(assembly, role))
            others = [arn for arn in readable if arn.endswith("*") and not _under(arn, archives)]
            if not others:
                what = f"role {role.logical_id} may read no request of the asynchronous endpoint"
                way_out = "allow s3:GetObject on the prefix of the requests"
                yield model.problem("ExecutionRoleArn", what, way_out)


def _readable(granted: list[Statement]) -> list[str]:
    context = {"aws:SecureTransport": "true"}
    found = (item for item in granted if item.allows and "s3:GetObject" in item.actions)
    return [arn for item in found if item.holds(context) for arn in item.resources]


def _under(arn: str, archives: list[str]) -> bool:
    return any(arn.rstrip("*").endswith(url.rsplit("/", 1)[0] + "/") for url in archives)


@rule("E9706", "A role is passed to a service that may assume it")
def passed_role(assembly: Assembly) -> Iterator[Finding]:
    for owner in assembly.of_type(ROLE):
        for statement in role_statements(assembly, owner):
            if not any(action.lower() == "iam:passrole" for action in statement.actions):
                continue
            services = [
                str(value).split(".")[0]
                for _, key, values in statement.conditions
                if key.lower() == "iam:passedtoservice"
                for value in (values if isinstance(values, list) else [values])
            ]
            for arn in statement.resources:
                role = assembly.find(arn, ROLE)
                if role is not None and services and not any(trusts(role, s, {}) for s in services):
                    what = f"{role.logical_id} is passed to a service that may not assume it"
                    path, value = f"{statement.path}.Condition", ", ".join(services)
                    way_out = "write the service that the role trusts"
                    yield statement.resource.problem(path, what, way_out, value=value)


@rule("E9707", "Conditions name the stack's own region and account")
def conditions_here(assembly: Assembly) -> Iterator[Finding]:
    trusted = [item for role in assembly.of_type(ROLE) for item in trust_statements(role)]
    for statement in (*identity_statements(assembly), *resource_statements(assembly), *trusted):
        stack = statement.resource.template.stack
        for _, key, values in statement.conditions:
            for value in filter(is_known, texts(values)):
                parts = value.split(":" if value.startswith("arn:") else ".")
                region, account, own_region = None, None, stack.region
                if key.lower() == "kms:viaservice" and len(parts) > 2:
                    region, own_region = parts[1], _key_region(statement) or stack.region
                elif key.lower() in ("aws:sourceaccount", "aws:principalaccount"):
                    account = value
                elif key.lower() == "aws:sourcearn" and len(parts) > 4:
                    region, account = parts[3], parts[4]
                for given, own in ((region, own_region), (account, stack.account)):
                    if given and own and not covers(given, own):
                        what, path = f"the condition on {key} never holds here", f"{statement.path}"
                        yield statement.resource.problem(path, what, f"write {own}", value=value)


def _key_region(statement: Statement) -> str | None:
    """Return the region of the KMS keys that a statement names; None for several, or none."""
    arns = [text.split(":") for text in statement.resources if is_known(text)]
    regions = {parts[3] for parts in arns if len(parts) > 4 and parts[2] == "kms"}
    return regions.pop() if len(regions) == 1 else None
