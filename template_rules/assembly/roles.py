"""Checks of roles: what their endpoint, build, training job or state machine needs is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from template_rules.assembly.check import assembly_check
from template_rules.assembly.needs import PUSH, Need, Place
from template_rules.hosting import (
    ENDPOINT,
    MODEL,
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
    has_foreign_policy,
    identity_statements,
    is_allowed,
    resource_statements,
    role_statements,
    trust_statements,
    trusts,
)
from template_rules.rules.builds import PROJECT
from template_rules.state_machine import MACHINE, Call, calls, definition, sample, states
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import at, boolean, fields, is_known, known_text, objects, texts

USERS = {
    MODEL: ("ExecutionRoleArn", "sagemaker"),
    PROJECT: ("ServiceRole", "codebuild"),
    MACHINE: ("RoleArn", "states"),
    "AWS::Lambda::Function": ("Role", "lambda"),
}
"""Type -> the property that names its role, and the service that assumes it."""
BUILD_READS = ("sources/", "networks/", "engines/", "timing-caches/")
BUILD_WRITES = ("networks/", "engines/", "timing-caches/")
"""Prefixes of the artifact bucket that an engine build reads and writes."""
CHECKPOINTS = "jobs/"


@assembly_check("E9700", "A role lets the service that uses it assume it, for this account")
def role_trust(assembly: Assembly) -> Iterator[Problem]:
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


@assembly_check("E9701", "A model's role may do what its endpoints need")
def model_role(assembly: Assembly) -> Iterator[Problem]:
    for model in assembly.of_type(MODEL):
        needs = [*_model_needs(assembly, model)]
        for endpoint in endpoints_of(assembly, model):
            needs += _endpoint_needs(assembly, model, endpoint)
        yield from _lacking(assembly, model, "ExecutionRoleArn", needs)


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
    yield from place.logs(group, creates=True, reason="to write the container's log")
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


@assembly_check("E9702", "An asynchronous endpoint's role may read requests, not archives alone")
def asynchronous_requests(assembly: Assembly) -> Iterator[Problem]:
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
            if not others and not has_foreign_policy(assembly, role):
                what = f"role {role.logical_id} may read no request of the asynchronous endpoint"
                way_out = "allow s3:GetObject on the prefix of the requests"
                yield model.problem("ExecutionRoleArn", what, way_out)


def _readable(granted: list[Statement]) -> list[str]:
    context = {"aws:SecureTransport": "true"}
    found = (item for item in granted if item.allows and "s3:GetObject" in item.actions)
    return [arn for item in found if item.holds(context) for arn in item.resources]


def _under(arn: str, archives: list[str]) -> bool:
    return any(arn.rstrip("*").endswith(url.rsplit("/", 1)[0] + "/") for url in archives)


@assembly_check("E9703", "A build's role may do what the build needs")
def build_role(assembly: Assembly) -> Iterator[Problem]:
    for project in assembly.of_type(PROJECT):
        needs = _project_needs(assembly, project)
        yield from _lacking(assembly, project, "ServiceRole", list(needs))


def _project_needs(assembly: Assembly, project: Resource) -> Iterator[Need]:
    place = Place(assembly=assembly, resource=project)
    yield from place.image(project.at("Environment.Image"), "to pull the build's image")
    yield from place.network(project.properties.get("VpcConfig"), "to attach to the VPC")
    if project.at("LogsConfig.CloudWatchLogs.Status") != "DISABLED":
        given = project.at("LogsConfig.CloudWatchLogs.GroupName")
        group = given if isinstance(given, str) else f"/aws/codebuild/{project.name}"
        made = assembly.find(group, "AWS::Logs::LogGroup") is not None
        yield from place.logs(group, creates=not made, reason="to write the build's log")
    commands = str(project.at("Source.BuildSpec"))
    variables = {
        str(item.get("Name")): item.get("Value")
        for _, item in objects(project.at("Environment.EnvironmentVariables"))
    }
    if "engine_build --" in commands and isinstance(variables.get("ROUNDHOUSE_BUCKET"), str):
        yield from _engine_build_needs(place, str(variables["ROUNDHOUSE_BUCKET"]))
    elif "images" in commands and boolean(project.at("Environment.PrivilegedMode") or False):
        yield Need(action="ecr:GetAuthorizationToken", arn="*", reason="to push images")
        for repository in assembly.of_type("AWS::ECR::Repository"):
            for action in PUSH:
                arn = str(repository.arn)
                yield Need(action=action, arn=arn, reason="to push images")
        for bucket in list(assembly.of_type("AWS::S3::Bucket"))[:1]:
            uri = f"s3://{bucket.name}/{BUILD_READS[0]}*"
            yield from place.objects(uri, read=True, reason="to read the build's source")


def _engine_build_needs(place: Place, bucket: str, extra: str = "") -> Iterator[Need]:
    for prefix in filter(None, (*BUILD_READS, extra)):
        uri, reason = f"s3://{bucket}/{prefix}*", "to read what the build needs"
        yield from place.objects(uri, read=True, reason=reason)
    for prefix in filter(None, (*BUILD_WRITES, extra)):
        uri, reason = f"s3://{bucket}/{prefix}*", "to publish what was built"
        yield from place.objects(uri, read=False, reason=reason)


@assembly_check("E9704", "A state machine's role may make the calls of its tasks")
def machine_role(assembly: Assembly) -> Iterator[Problem]:
    for machine in assembly.of_type(MACHINE):
        needs: list[Need] = []
        for call in calls(assembly):
            if call.machine is machine:
                needs += _call_needs(assembly, call)
        if any(_is_distributed(state) for _, state in states(definition(machine))):
            place = Place(assembly=assembly, resource=machine)
            execution = place.arn("states", f"execution:{machine.name}/map:\0run\0")
            reason = "to run the distributed map"
            needs.append(Need(action="states:StartExecution", arn=str(machine.arn), reason=reason))
            for action in ("states:DescribeExecution", "states:StopExecution"):
                needs.append(Need(action=action, arn=execution, reason=reason))
        yield from _lacking(assembly, machine, "RoleArn", needs)


def _is_distributed(state: dict[str, object]) -> bool:
    return bool(at(state, "ItemProcessor", "ProcessorConfig", "Mode") == "DISTRIBUTED")


def _call_needs(assembly: Assembly, call: Call) -> Iterator[Need]:
    place, arguments = Place(assembly=assembly, resource=call.machine), call.arguments
    reason = f"for state {call.state}"
    action = f"{call.service}:{call.operation}"
    if call.service == "codebuild":
        for project in _projects(assembly, call):
            yield Need(action=action, arn=str(project.arn), reason=reason)
    elif call.service == "sagemaker" and "TrainingJob" in call.operation:
        jobs = [item.arguments.get("TrainingJobName") for item in calls(assembly)]
        name = next((text for job in jobs if (text := sample(job)) is not None), "*")
        arn = place.arn("sagemaker", f"training-job/{name}")
        yield Need(action=action, arn=arn, reason=reason)
        if arguments.get("Tags"):
            yield Need(action="sagemaker:AddTags", arn=arn, reason=reason)
        role = arguments.get("RoleArn")
        if isinstance(role, str):
            context = {"iam:PassedToService": "sagemaker.amazonaws.com"}
            yield Need(action="iam:PassRole", arn=role, reason=reason, context=context)
    elif call.service == "sns" and call.operation == "Publish":
        yield from place.topic(sample(arguments.get("TopicArn")), reason)
    elif call.service == "lambda":
        yield Need(
            action="lambda:InvokeFunction",
            arn=str(arguments.get("FunctionName", "*")),
            reason=reason,
        )


def _projects(assembly: Assembly, call: Call) -> list[Resource]:
    """Return the projects that a call may be about: by name, or by a name that is put together."""
    names = [item.arguments.get("ProjectName") for item in calls(assembly)]
    found = []
    for project in assembly.of_type(PROJECT):
        for name in {text for given in names if (text := sample(given)) is not None}:
            rest = project.name.removeprefix(name.rstrip("*"))
            listed = f'"{rest}"' in str(definition(call.machine))
            if project.name == name or (name.endswith("*") and rest != project.name and listed):
                found.append(project)
    return found


@assembly_check("E9705", "A training job's role may do what the build in it needs")
def job_role(assembly: Assembly) -> Iterator[Problem]:
    for call in calls(assembly):
        role = assembly.find(call.arguments.get("RoleArn"), ROLE)
        if call.operation != "CreateTrainingJob" or role is None:
            continue
        place = Place(assembly=assembly, resource=role)
        account = role.template.stack.account
        context = {} if account is None else {"aws:SourceAccount": account}
        if not trusts(role, "sagemaker", context):
            what = "SageMaker may not assume the training job's role for this account"
            yield role.problem("AssumeRolePolicyDocument", what, "trust sagemaker.amazonaws.com")
        needs = list(_job_needs(place, call))
        yield from _lacking(assembly, role, "", needs, role=role)


def _job_needs(place: Place, call: Call) -> Iterator[Need]:
    given = call.arguments
    image = at(given, "AlgorithmSpecification", "TrainingImage")
    yield from place.image(image, "to pull the job's image")
    yield from place.network(given.get("VpcConfig"), "to attach to the VPC")
    group = "/aws/sagemaker/TrainingJobs"
    name = (sample(given.get("TrainingJobName")) or "*").rstrip("*")
    own = place.arn("logs", f"log-group:{group}")
    reason = "to write the job's log"
    yield Need(action="logs:CreateLogGroup", arn=own, reason=reason)
    for action in ("logs:CreateLogStream", "logs:PutLogEvents"):
        yield Need(action=action, arn=f"{own}:log-stream:{name}x", reason=reason)
    namespace = {"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"}
    yield Need(
        action="cloudwatch:PutMetricData",
        arn="*",
        reason="to publish the job's metrics",
        context=namespace,
    )
    publish = sample(at(given, "HyperParameters", "publish"))
    if publish is not None and publish.startswith("s3://"):
        bucket = publish.removeprefix("s3://").split("/")[0]
        yield from _engine_build_needs(place, bucket, CHECKPOINTS)
    for key in ("OutputDataConfig", "CheckpointConfig"):
        target = sample(
            fields(given.get(key)).get("S3OutputPath", fields(given.get(key)).get("S3Uri"))
        )
        if target is not None:
            uri = f"{target.rstrip('*').rstrip('/')}/*"
            key_id = fields(given.get(key)).get("KmsKeyId")
            yield from place.objects(uri, read=False, reason="to write results", key=key_id)


@assembly_check("E9706", "A role is passed to a service that may assume it")
def passed_role(assembly: Assembly) -> Iterator[Problem]:
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


@assembly_check("E9707", "Conditions name the stack's own region and account")
def conditions_here(assembly: Assembly) -> Iterator[Problem]:
    trusted = [item for role in assembly.of_type(ROLE) for item in trust_statements(role)]
    for statement in (*identity_statements(assembly), *resource_statements(assembly), *trusted):
        stack = statement.resource.template.stack
        for _, key, values in statement.conditions:
            for value in filter(is_known, texts(values)):
                parts = value.split(":" if value.startswith("arn:") else ".")
                region, account = None, None
                if key.lower() == "kms:viaservice" and len(parts) > 2:
                    region = parts[1]
                elif key.lower() in ("aws:sourceaccount", "aws:principalaccount"):
                    account = value
                elif key.lower() == "aws:sourcearn" and len(parts) > 4:
                    region, account = parts[3], parts[4]
                for given, own in ((region, stack.region), (account, stack.account)):
                    if given and own and not covers(given, own):
                        what, path = f"the condition on {key} never holds here", f"{statement.path}"
                        way_out = f"write {own}"
                        yield statement.resource.problem(path, what, way_out, value=value)


def _lacking(
    assembly: Assembly, user: Resource, path: str, needs: list[Need], role: Resource | None = None
) -> Iterator[Problem]:
    """Yield the actions that a role lacks, one finding a reason."""
    found = role or assembly.find(user.properties.get(path), ROLE)
    if found is None or has_foreign_policy(assembly, found):
        return
    granted = role_statements(assembly, found)
    lacking: dict[str, list[str]] = {}
    for need in needs:
        context = {"aws:SecureTransport": "true", **need.context}
        if not _is_met(granted, need, context):
            lacking.setdefault(need.reason, []).append(need.shown)
    for reason, missing in lacking.items():
        what = f"role {found.logical_id} lacks what it needs {reason}"
        value = ", ".join(missing[:4])
        yield user.problem(path, what, "allow it in the role's policy", value=value)


def _is_met(granted: list[Statement], need: Need, context: dict[str, object]) -> bool:
    if is_allowed(granted, need.action, need.arn, context):
        return True
    prefix = need.arn.rstrip("*")
    inside = (arn for item in granted for arn in item.resources if arn.startswith(prefix))
    return need.under and any(is_allowed(granted, need.action, arn, context) for arn in inside)


CHECKS = (
    role_trust,
    model_role,
    asynchronous_requests,
    build_role,
    machine_role,
    job_role,
    passed_role,
    conditions_here,
)
