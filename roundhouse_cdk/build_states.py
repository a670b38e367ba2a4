"""The states of the machine that builds engines, in the Amazon States Language.

Waves, one after the other, of engines side by side. Its input is `{"source": "bucket/key",
"commit": "…", "waves": [[engine, …], …]}`, each engine with engineKey, model, computeCapability,
route and instanceType; with planFrom (`KEY` or `KEY:SHA256` of the engine whose plan it is packaged
of) and planRoute where nothing is to be compiled. A text generator's checkpoint is built as one of
them: engineKey is its checkpoint key, and `scheme` its number format. Engines that share a network
or a plan that nobody has made yet belong into different waves. Every engine is an execution of its
own, in a Map Run: one history would not hold the looks at forty long builds. Its output is
`{"built": [{engineKey, model}], "failed": [{engineKey, model, reason, log}]}`; with a failure it
ends FAILED, its cause naming each engine, once all others have ended.

An engine's execution ends with a record of what came of it, and never in failure: `{"status":
"built", engineKey, model, notReused}` or `{"status": "failed", engineKey, model, reason, log}`. An
engine with `planFrom` is packaged of that engine's plan by `planRoute`. Where the builder refuses
the plan, or no machine answers for the build, it is compiled by its `route`, and `notReused` has
the reason; a fault of the tree would stop the compilation too, and is the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.text_generation.checkpoint_key import QUANTIZER_JOB
from roundhouse_cdk import build_expressions as ex
from roundhouse_cdk.build_expressions import jsonata, literal, with_fields
from roundhouse_cdk.statements import TRAINING_LOG_GROUP

BUILDSPEC = "engine_build/buildspec.yml"
"""In the source that a build brings."""
CHECKPOINT_BUILDSPEC = "engine_build/checkpoint_buildspec.yml"
VARIABLES = {
    "ROUNDHOUSE_MODEL": "$states.input.engine.model",
    "ROUNDHOUSE_COMPUTE_CAPABILITY": "$states.input.engine.computeCapability",
    "ROUNDHOUSE_SOURCE_COMMIT": "$states.input.commit",
    "ROUNDHOUSE_EXECUTION": ex.EXECUTION_TAG,
    "ROUNDHOUSE_CANDIDATE": ex.CANDIDATE,
    "ROUNDHOUSE_PLAN_FROM": "$states.input.planFrom",
}
"""Variables of one build, beside those of its project."""
CHECKPOINT_VARIABLES = {"ROUNDHOUSE_KEY": "$states.input.engine.engineKey"}
"""And one of a checkpoint's, where there are text generators."""
REFUSED_FOR_NOW = (
    "CodeBuild.CodeBuildException",
    "CodeBuild.SdkClientException",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
    "Lambda.TooManyRequestsException",
    "SageMaker.SageMakerException",
    "SageMaker.SdkClientException",
    "Sns.SnsException",
    "Sns.ThrottledException",
    "Sns.SdkClientException",
)
"""Errors by which a call is throttled, or does not arrive.

An error that the service's API model does not name, as ThrottlingException is, comes under the name
of the service's own exception.
"""
BRIEFLY = 3
"""Attempts of some seconds.

What is refused for good comes under the same names, and who lacks capacity waits in a state of its
own.
"""
PATIENTLY = 20
"""Attempts of a quarter of an hour: a job goes on, whether or not it can be looked at."""
SUBJECT_CHARACTERS = 99
TRIED = f'$states.input.engine.engineKey & "-" & {ex.CANDIDATE}'
"""One try at an engine. Its unfinished work is its own: a job takes over nothing of another, whose
source nobody may have reviewed."""


class BuildStates(Construct):
    """Makes the states; `start` is the first. `${JobRole}` in it stands for the jobs' role.

    `projects` are the routes that have a CodeBuild project; images are URIs of training jobs'.
    `signers` are the functions by name; `quantizer_image` None: there are no text generators.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        projects: Sequence[str],
        signers: Mapping[str, lambda_.IFunction],
        training_image: str,
        quantizer_image: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._environment, self._projects, self._signers = environment, projects, signers
        self._training_image, self._quantizer_image = training_image, quantizer_image
        self._has_checkpoints = quantizer_image is not None
        self._not_built = sfn.Choice.jsonata(self, "NotBuilt")
        engines = sfn.DistributedMap(
            self,
            "Engines",
            label="Engine",
            items_path="$.engines",
            max_concurrency=environment.builds.at_once,
            # Failed or stopped child executions do not fail the others.
            tolerated_failure_percentage=100,
            item_selector={
                "engine.$": "$$.Map.Item.Value",
                "source.$": "$.source",
                "commit.$": "$.commit",
                "execution.$": "$$.Execution.Id",
            },
        ).item_processor(
            self._engine(),
            mode=sfn.ProcessorMode.DISTRIBUTED,
            execution_type=sfn.ProcessorType.STANDARD,
        )
        # One wave after the other: a later one finds the networks that an earlier one made.
        self.start = sfn.Map(
            self,
            "Waves",
            items_path="$.waves",
            max_concurrency=1,
            item_selector={
                "engines.$": "$$.Map.Item.Value",
                "source.$": "$.source",
                "commit.$": "$.commit",
            },
            result_path="$.records",
        ).item_processor(engines)
        self.start.next(self._pass("Summarize", ex.SUMMARIZE)).next(self._summary())

    def _summary(self) -> sfn.IChainable:
        ended = self._choice(
            "AllBuilt",
            {"$count($states.input.failed) = 0": sfn.Succeed(self, "EveryEngineBuilt")},
            sfn.Fail.jsonata(
                self,
                "NotAllBuilt",
                error="Roundhouse.EnginesNotBuilt",
                cause=jsonata(f"$substring({ex.FAILURES}, 0, {ex.CAUSE_CHARACTERS})"),
            ),
        )
        return self._publish("TellSummary", "builds-ended", ex.COUNTS, ex.SUMMARY, ended)

    def _engine(self) -> sfn.IChainable:
        """Return the first state of one engine's execution."""
        environment = self._environment
        reason, log = (
            f"$substring($states.input.{field}, 0, {most})"
            for field, most in (("reason", ex.REASON_CHARACTERS), ("log", ex.LOG_CHARACTERS))
        )
        failed = self._record("Failed", "failed", {"reason": reason, "log": log})
        built = self._record("Built", "built", {"notReused": "$states.input.notReused"})
        subject = '$states.input.engine.model & " was not built"'
        told = self._publish("TellFailure", "engine-not-built", subject, ex.NOT_BUILT, failed)
        sign = self._sign(built, told)
        choose = sfn.Choice.jsonata(self, "ChooseRoute")
        listed = f"$states.input.route in [{', '.join(map(literal, self._projects))}]"
        routes = {listed: self._build(sign)}
        jobs = self._training_jobs(sign)
        for route, state in jobs.items():
            routes[f"$states.input.route = {literal(route)}"] = state
        allowed = literal(", ".join((*self._projects, *jobs)))
        no_route = (
            f'"environment {environment.name} has no route " & $string($states.input.route) & ";'
            f' allowed: " & {allowed}'
        )
        unknown = self._pass("NoRoute", with_fields({"reason": no_route}))
        unknown.next(told)
        self._when(choose, routes, unknown)
        again = self._pass("TryAgain", ex.another_try(environment))
        again.next(self._wait("WaitForCapacity")).next(choose)
        compiled = self._pass("Compile", with_fields(ex.COMPILE))
        compiled.next(choose)
        retries = environment.builds.capacity_retries
        try_again = f"$states.input.retriable and $states.input.attempt < {retries}"
        self._when(self._not_built, {try_again: again, ex.PLAN_REFUSED: compiled}, told)
        return self._pass("Begin", with_fields(ex.BEGIN)).next(choose)

    def _build(self, sign: sfn.IChainable) -> sfn.State:
        """Return the state that starts a build in one of the environment's projects."""
        environment = self._environment
        prefix = literal(names.builder_project(environment, ""))
        token = "$states.input.execution & $states.input.engine.engineKey & $states.input.attempt"
        variables = VARIABLES | (CHECKPOINT_VARIABLES if self._has_checkpoints else {})
        buildspec = BUILDSPEC
        if self._has_checkpoints:
            both = literal(CHECKPOINT_BUILDSPEC), literal(BUILDSPEC)
            buildspec = jsonata(f"{ex.IS_CHECKPOINT} ? {both[0]} : {both[1]}")
        arguments = {
            "ProjectName": jsonata(f"{prefix} & $states.input.route"),
            "SourceTypeOverride": "S3",
            "SourceLocationOverride": jsonata("$states.input.source"),
            # AWS does not document that the buildspec of a NO_SOURCE project counts for another
            # source.
            "BuildspecOverride": buildspec,
            "EnvironmentVariablesOverride": [
                {"Name": name, "Value": jsonata(value), "Type": "PLAINTEXT"}
                for name, value in variables.items()
            ],
            # A start whose answer was lost is not a second build.
            "IdempotencyToken": jsonata(f'$hash({token}, "SHA-256")'),
        }
        started = {
            "job": "$states.result.Build.Id",
            "log": '"of build " & $states.result.Build.Id',
            **ex.first_wait(environment),
        }
        start = self._call("StartBuild", "codebuild:startBuild", arguments, with_fields(started))
        self._catch(start)
        asked = {"Ids": [jsonata("$states.input.job")]}
        look = self._look(
            "Build", "codebuild:batchGetBuilds", asked, ex.build_progress(environment)
        )
        start.next(self._poll("Build", look, ["IN_PROGRESS"], "SUCCEEDED", sign))
        return start

    def _training_jobs(self, sign: sfn.IChainable) -> dict[str, sfn.State]:
        """Return by route the states that start a job that compiles, and one that quantizes."""
        environment = self._environment
        asked = {"TrainingJobName": jsonata("$states.input.job")}
        progress = ex.training_progress(environment)
        look = self._look("TrainingJob", "sagemaker:describeTrainingJob", asked, progress)
        wait = self._poll("TrainingJob", look, ["InProgress", "Stopping"], "Completed", sign)
        name = job_name(environment)
        named = {"job": name, "log": f"{literal(TRAINING_LOG_GROUP + ' ')} & {name}"}
        started = with_fields({**named, **ex.first_wait(environment)})
        jobs = {"training-job": ("StartTrainingJob", self._training_image)}
        if self._quantizer_image is not None:
            jobs[QUANTIZER_JOB] = ("StartQuantizerJob", self._quantizer_image)
        found: dict[str, sfn.State] = {}
        for route, (construct_id, image) in jobs.items():
            job = training_job(environment, image, is_checkpoint=route == QUANTIZER_JOB)
            state = self._call(construct_id, "sagemaker:createTrainingJob", job, started)
            # The name is this try's own: whose job it is when it is there already is certain.
            state.add_catch(wait, errors=["SageMaker.ResourceInUseException"], outputs=started)
            self._catch(state)
            state.next(wait)
            found[route] = state
        return found

    def _sign(self, built: sfn.IChainable, told: sfn.IChainable) -> sfn.State:
        """Return the state that has what a build left signed and published, or refused."""
        environment = self._environment
        signed = sfn.Choice.jsonata(self, "Signed")
        results = {f"$states.input.signed = {literal('signed')}": built}
        own = "SignEngine" if self._has_checkpoints else "Sign"
        first: sfn.State = self._invoke(own, names.signer(environment), signed)
        if self._has_checkpoints:
            checkpoint = self._invoke(
                "SignCheckpoint", names.checkpoint_signer(environment), signed
            )
            # Of a checkpoint, whose build took hours: also what the function raised, such as S3's
            # SlowDown, or its own timeout. It goes on from what is published; what it refuses is no
            # error and final.
            checkpoint.add_retry(
                errors=["States.ALL"],
                interval=Duration.seconds(30),
                backoff_rate=2,
                max_attempts=3,
                jitter_strategy=sfn.JitterType.FULL,
            )
            # Files of hundreds of gigabytes may take longer than a function runs: it is called
            # again.
            results[f"$states.input.signed = {literal('unfinished')}"] = checkpoint
            first = self._choice("Sign", {ex.IS_CHECKPOINT: checkpoint}, first)
        self._when(signed, results, told)
        return first

    def _invoke(self, construct_id: str, name: str, then: sfn.IChainable) -> sfn.TaskStateBase:
        log = f'"of function {name}, log group /aws/lambda/{name}"'
        payload = "$states.result.Payload"
        output = {"signed": f"{payload}.status", "reason": f"{payload}.reason", "log": log}
        engine = "$states.input.engine"
        request = {
            "engineKey": f"{engine}.engineKey",
            "model": f"{engine}.model",
            "candidate": ex.CANDIDATE,
            **{name: f"$states.input.{name}" for name in ("source", "commit", "execution")},
        }
        given = {field: jsonata(value) for field, value in request.items()}
        task = tasks.LambdaInvoke.jsonata(
            self,
            construct_id,
            lambda_function=self._signers[name],
            payload=sfn.TaskInput.from_object(given),
            outputs=with_fields(output),
            retry_on_service_exceptions=False,
        )
        self._retry(task, BRIEFLY)
        self._catch(task, lasts=True, log=log)
        task.next(then)
        return task

    def _publish(
        self, construct_id: str, event: str, subject: str, message: str, then: sfn.IChainable
    ) -> sfn.State:
        """Return a task that publishes an event and passes its input on, also when that fails.

        `subject` and `message` are expressions. Subscribers filter by the attributes `event` and
        `environment`.
        """
        environment, unchanged = self._environment, jsonata("$states.input")
        title = f"{literal(f'Roundhouse {environment.name}: ')} & {subject}"
        attributes = {"event": event, "environment": environment.name}
        arguments = {
            "TopicArn": arns.alarm_topic(environment),
            "Subject": jsonata(f"$substring({title}, 0, {SUBJECT_CHARACTERS})"),
            "Message": jsonata(message),
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": value}
                for name, value in attributes.items()
            },
        }
        task = self._call(construct_id, "sns:publish", arguments, unchanged)
        task.add_catch(then, errors=["States.ALL"], outputs=unchanged)
        task.next(then)
        return task

    def _call(
        self,
        construct_id: str,
        operation: str,
        arguments: Mapping[str, Any],
        outputs: str,
        attempts: int = BRIEFLY,
    ) -> sfn.TaskStateBase:
        """Return a task that calls an AWS API, such as codebuild:startBuild.

        All by the SDK integration, whose calls return at once: of an integration that waits, nobody
        sees how far the build is, and a training job that found no capacity looks like one that
        failed.
        """
        service, _, action = operation.partition(":")
        task = tasks.CallAwsService.jsonata(
            self,
            construct_id,
            service=service,
            action=action,
            parameters=arguments,
            outputs=outputs,
            # For a role that the CDK makes; the machine's is given.
            iam_resources=["*"],
        )
        self._retry(task, attempts)
        return task

    @staticmethod
    def _retry(task: sfn.TaskStateBase, attempts: int) -> None:
        """Try again, less and less often, at most a minute apart."""
        task.add_retry(
            errors=list(REFUSED_FOR_NOW),
            interval=Duration.seconds(2),
            backoff_rate=2,
            max_attempts=attempts,
            max_delay=Duration.seconds(60),
            jitter_strategy=sfn.JitterType.FULL,
        )

    def _catch(self, task: sfn.TaskStateBase, **how: Any) -> None:
        """Keep why an API refused, as `expressions.refusal` says."""
        output = ex.refusal(self._environment, **how)
        task.add_catch(self._not_built, errors=["States.ALL"], outputs=output)

    def _look(
        self, job: str, operation: str, arguments: Mapping[str, Any], outputs: str
    ) -> sfn.TaskStateBase:
        """Return the state that describes a job, however long AWS refuses to."""
        look = self._call(f"LookAt{job}", operation, arguments, outputs, attempts=PATIENTLY)
        self._catch(look, lasts=True)
        return look

    def _poll(
        self, job: str, look: sfn.State, going: Sequence[str], succeeded: str, sign: sfn.IChainable
    ) -> sfn.Wait:
        """Return the state that waits for a job, looks at it, and goes on by its status."""
        wait = self._wait(f"WaitFor{job}")
        among = f"$states.input.status in [{', '.join(map(literal, going))}]"
        ended = f"$states.input.status = {literal(succeeded)}"
        choice = self._choice(f"{job}Ended", {among: wait, ended: sign}, self._not_built)
        wait.next(look).next(choice)
        return wait

    def _choice(
        self, construct_id: str, rules: Mapping[str, sfn.IChainable], default: sfn.IChainable
    ) -> sfn.Choice:
        choice = sfn.Choice.jsonata(self, construct_id)
        self._when(choice, rules, default)
        return choice

    @staticmethod
    def _when(
        choice: sfn.Choice, rules: Mapping[str, sfn.IChainable], default: sfn.IChainable
    ) -> None:
        """Go to the state of the first condition that holds."""
        for condition, state in rules.items():
            choice.when(sfn.Condition.jsonata(jsonata(condition)), state)
        choice.otherwise(default)

    def _pass(self, construct_id: str, outputs: Any) -> sfn.Pass:
        return sfn.Pass.jsonata(self, construct_id, outputs=outputs)

    def _record(self, construct_id: str, status: str, fields: Mapping[str, str]) -> sfn.Pass:
        given = {
            "engineKey": "$states.input.engine.engineKey",
            "model": "$states.input.engine.model",
            **fields,
        }
        record = {name: jsonata(value) for name, value in given.items()}
        return self._pass(construct_id, {"status": status, **record})

    def _wait(self, construct_id: str) -> sfn.Wait:
        """Wait for the input's `seconds`."""
        return sfn.Wait(self, construct_id, time=sfn.WaitTime.seconds_path("$.seconds"))


def training_job(
    environment: EnvironmentSpec, image_uri: str, *, is_checkpoint: bool = False
) -> dict[str, Any]:
    """Arguments of CreateTrainingJob, which builds an engine on the serving instance type.

    Or a checkpoint, by its key.

    Training, not processing: it knows every GPU type that hosting knows, processing no A100, H200
    or B200; it keeps unfinished work between tries, and says why it failed in a build's own words.

    The volume has no key: every GPU type has disks of its own, which are encrypted by hardware and
    refuse one. The container has a network: it fetches its sources and publishes to S3 itself.
    """
    builds, bucket = environment.builds, f"s3://{names.artifact_bucket(environment)}"
    request = {
        "environment": environment.name,
        "model": jsonata("$states.input.engine.model"),
        "compute_capability": jsonata("$states.input.engine.computeCapability"),
        "publish": bucket,
        "candidate": jsonata(ex.CANDIDATE),
        "commit": jsonata("$states.input.commit"),
        "image": image_uri,
    }
    if is_checkpoint:
        del request["compute_capability"]
        request["checkpoint_key"] = jsonata("$states.input.engine.engineKey")
    uri = jsonata('"s3://" & $states.input.source')
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    checkpoints = literal(f"{bucket}/{names.unfinished_work_prefix('')}")
    vpc, network = {}, environment.network
    if network is not None:
        subnets, groups = list(network.subnet_ids), list(network.security_group_ids)
        vpc = {"VpcConfig": {"Subnets": subnets, "SecurityGroupIds": groups}}
    return {
        "TrainingJobName": jsonata(job_name(environment)),
        "AlgorithmSpecification": {"TrainingImage": image_uri, "TrainingInputMode": "File"},
        # Replaced by the role's ARN where the state machine is deployed.
        "RoleArn": "${JobRole}",
        "HyperParameters": request,
        "InputDataConfig": [
            {"ChannelName": "source", "DataSource": {"S3DataSource": source}, "InputMode": "File"}
        ],
        "OutputDataConfig": {
            "S3OutputPath": f"{bucket}/{names.JOBS_PREFIX}/results",
            # Without one SageMaker takes the account's own for S3, whatever the bucket says.
            "KmsKeyId": arns.key_id(environment),
        },
        "CheckpointConfig": {"S3Uri": jsonata(f"{checkpoints} & {TRIED}")},
        "ResourceConfig": {
            "InstanceType": jsonata("$states.input.engine.instanceType"),
            "InstanceCount": 1,
            "VolumeSizeInGB": builds.volume_gib,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 60 * builds.timeout_minutes},
        "EnableNetworkIsolation": False,
        "Tags": [{"Key": "roundhouse-environment", "Value": environment.name}],
        **vpc,
    }


def job_name(environment: EnvironmentSpec) -> str:
    """At most 16 + 20 + 8 + 2 characters beside 15 of ours: SageMaker takes 63."""
    return f"{literal(names.training_job_prefix(environment))} & {TRIED}"
