"""Checks of the roles of builds, training jobs and state machines."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.hosting import MACHINE, PROJECT
from template_rules.policies import ROLE, trusts
from template_rules.rule import rule
from template_rules.rules.needs import PUSH, Need, Place, lacking_actions
from template_rules.state_machine import Call, calls, definition, sample, states
from template_rules.templates import Assembly, Finding, Resource
from template_rules.values import at, boolean, fields, objects

BUILD_WRITES = ("networks/", "candidates/", "timing-caches/")
BUILD_READS = ("sources/", "engines/", *BUILD_WRITES)
"""Prefixes of the artifact bucket that an engine build reads and writes."""
CHECKPOINTS = "jobs/"


@rule("E9703", "A build's role may do what the build needs")
def build_role(assembly: Assembly) -> Iterator[Finding]:
    for project in assembly.of_type(PROJECT):
        needs = _project_needs(assembly, project)
        yield from lacking_actions(assembly, project, "ServiceRole", list(needs))


def _project_needs(assembly: Assembly, project: Resource) -> Iterator[Need]:
    place = Place(assembly=assembly, resource=project)
    yield from place.image(project.at("Environment.Image"), "to pull the build's image")
    network = project.properties.get("VpcConfig")
    yield from place.network(network, "to attach to the VPC", hosts=False)
    if project.at("LogsConfig.CloudWatchLogs.Status") != "DISABLED":
        given = project.at("LogsConfig.CloudWatchLogs.GroupName")
        group = given if isinstance(given, str) else f"/aws/codebuild/{project.name}"
        yield from place.logs(group, reason="to write the build's log")
    commands = str(project.at("Source.BuildSpec"))
    variables = {
        str(item.get("Name")): item.get("Value")
        for _, item in objects(project.at("Environment.EnvironmentVariables"))
    }
    compiles = "engine_build --" in commands and "--key" not in commands
    if compiles and isinstance(variables.get("ROUNDHOUSE_BUCKET"), str):
        yield from _engine_build_needs(place, str(variables["ROUNDHOUSE_BUCKET"]))
    elif "images" in commands and boolean(project.at("Environment.PrivilegedMode") or False):
        yield Need(action="ecr:GetAuthorizationToken", arn="*", reason="to push images")
        for repository in assembly.of_type("AWS::ECR::Repository"):
            for action in PUSH:
                yield Need(action=action, arn=str(repository.arn), reason="to push images")
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


@rule("E9704", "A state machine's role may make the calls of its tasks")
def machine_role(assembly: Assembly) -> Iterator[Finding]:
    for machine in assembly.of_type(MACHINE):
        needs: list[Need] = []
        for call in calls(assembly):
            if call.machine is machine:
                needs += _call_needs(assembly, call)
        path = ("ItemProcessor", "ProcessorConfig", "Mode")
        if "DISTRIBUTED" in (at(state, *path) for _, state in states(definition(machine))):
            place = Place(assembly=assembly, resource=machine)
            execution = place.arn("states", f"execution:{machine.name}/map:\0run\0")
            reason = "to run the distributed map"
            needs.append(Need(action="states:StartExecution", arn=str(machine.arn), reason=reason))
            for action in ("states:DescribeExecution", "states:StopExecution"):
                needs.append(Need(action=action, arn=execution, reason=reason))
        yield from lacking_actions(assembly, machine, "RoleArn", needs)


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


@rule("E9705", "A training job's role may do what the build in it needs")
def job_role(assembly: Assembly) -> Iterator[Finding]:
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
        yield from lacking_actions(assembly, role, "", list(_job_needs(place, call)), role=role)


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
