"""A job's life against SageMaker's replies: begun once, found again, stopped, refused."""

import pytest
from botocore.exceptions import ClientError

from roundhouse.errors import AwsError, NotReadyError, RoundhouseError
from roundhouse.recommendation.job import Job, open_job, stop_jobs
from roundhouse.recommendation.quotas import require_quotas
from tests.synth.deployments import environment
from tests.unit.roundhouse.recommendation.jobs import benchmark, request, session

pytestmark = pytest.mark.unit


def refusal(code, message):
    return ClientError({"Error": {"Code": code, "Message": message}}, "Any")


class Pages:
    def __init__(self, page):
        self.page = page

    def paginate(self, **_):
        return [self.page]


class Cloud:
    """SageMaker, S3 and Service Quotas as far as a job asks them; keeps what was asked."""

    def __init__(self, statuses=(), refused=None, has_archive=True, quotas=()):
        self.jobs, self.models, self.calls = {}, set(), []
        self.statuses, self.refused = list(statuses), refused or {}
        self.has_archive, self.quotas = has_archive, quotas

    def __call__(self, service):
        return self

    def _note(self, name):
        self.calls.append(name)
        if name in self.refused:
            raise self.refused[name]

    def head_object(self, **_):
        if not self.has_archive:
            raise refusal("404", "Not Found")
        return {}

    def put_object(self, Key, **_):
        self._note("put_object")
        self.key = Key

    def create_model(self, ModelName, **_):
        self._note("create_model")
        self.models.add(ModelName)

    def delete_model(self, ModelName):
        self.models.discard(ModelName)

    def create_inference_recommendations_job(self, JobName, **_):
        self._note("create_job")
        self.jobs[JobName] = "PENDING"

    def describe_inference_recommendations_job(self, JobName):
        if JobName not in self.jobs:
            raise refusal("ResourceNotFound", "no such job")
        if self.jobs[JobName] in ("PENDING", "IN_PROGRESS") and self.statuses:
            self.jobs[JobName] = self.statuses.pop(0)
        reply = {"Status": self.jobs[JobName]}
        if reply["Status"] == "COMPLETED":
            reply["InferenceRecommendations"] = [benchmark()]
        if reply["Status"] == "FAILED":
            reply["FailureReason"] = "ResourceLimitExceeded: ml.g5.xlarge."
        return reply

    def get_scaling_configuration_recommendation(self, **_):
        self._note("scaling")
        return {}

    def stop_inference_recommendations_job(self, JobName):
        self.jobs[JobName] = "STOPPING"

    def get_paginator(self, name):
        if name == "list_inference_recommendations_job_steps":
            return Pages({"Steps": [{"Status": "COMPLETED", "InferenceBenchmark": benchmark()}]})
        if name == "list_inference_recommendations_jobs":
            rows = [{"JobName": name, "Status": status} for name, status in self.jobs.items()]
            return Pages({"InferenceRecommendationsJobs": rows})
        return Pages({"Quotas": self.quotas})


@pytest.fixture
def shells(tmp_path):
    def of(cloud):
        return session(tmp_path, environment("dev"), cloud)

    return of


def begin(shells, cloud, *, again=False):
    shell, printed = shells(cloud)
    return open_job(shell, request(), again=again, sleep=lambda _: None), printed


def test_a_job_is_begun_once_and_its_model_is_deleted_in_the_end(shells):
    cloud = Cloud(["IN_PROGRESS", "COMPLETED"])
    job, printed = begin(shells, cloud)
    assert cloud.models == {job.name}
    assert cloud.key == f"jobs/payloads/{request().payload.sha256}.tar.gz"
    job.follow()
    assert cloud.models == set() and "COMPLETED" in printed.getvalue()
    assert job.record(None).recommendations[0].invocations_per_minute == 3000
    again, printed = begin(shells, cloud)
    assert again.name == job.name and "is done already" in printed.getvalue()
    assert cloud.calls.count("create_job") == 1
    another, _ = begin(shells, cloud, again=True)
    assert another.name == request().job_name(2)


def test_ctrl_c_leaves_the_job_to_itself_and_the_next_call_follows_it(shells):
    cloud = Cloud()
    job, printed = begin(shells, cloud)

    def interrupt(_):
        raise KeyboardInterrupt

    job.sleep = interrupt
    with pytest.raises(KeyboardInterrupt):
        job.follow()
    assert f"The job goes on: {job.name}" in printed.getvalue()
    assert cloud.jobs == {job.name: "PENDING"} and cloud.models
    cloud.statuses = ["COMPLETED"]
    found, _ = begin(shells, cloud)
    found.follow()
    assert cloud.calls.count("create_job") == 1 and not cloud.models


def test_a_failed_job_says_why_and_is_begun_anew(shells):
    cloud = Cloud(["FAILED"])
    job, _ = begin(shells, cloud)
    job.follow()
    with pytest.raises(AwsError, match=r"is FAILED: ResourceLimitExceeded.*Way out: a quota"):
        job.record(None)
    anew, _ = begin(shells, cloud)
    assert anew.name == request().job_name(2)


def test_aws_may_be_silent_for_a_while_and_no_longer(shells):
    cloud = Cloud()
    job, _ = begin(shells, cloud)
    throttled = refusal("ThrottlingException", "Rate exceeded")
    answers = [throttled, {"Status": "COMPLETED"}]

    def describe(JobName):
        answer = answers.pop(0) if answers else throttled
        if isinstance(answer, Exception):
            raise answer
        return answer

    cloud.describe_inference_recommendations_job = describe
    job.follow()
    assert job.status == "COMPLETED"
    job.description = {"Status": "IN_PROGRESS"}
    with pytest.raises(NotReadyError, match="The job goes on, and nobody follows it"):
        job.follow()


@pytest.mark.parametrize(
    ("cloud", "words"),
    [
        (Cloud(has_archive=False), "is not there, though the lock names it"),
        (
            Cloud(refused={"create_job": refusal("ResourceLimitExceeded", "at most 5 jobs")}),
            "Way out: a quota of the account is used up",
        ),
        (
            Cloud(refused={"create_model": refusal("ValidationException", "cannot be assumed")}),
            "`roundhouse deploy` makes the role",
        ),
    ],
)
def test_refuses_with_the_way_out_and_leaves_nothing(shells, cloud, words):
    with pytest.raises(RoundhouseError, match=words):
        begin(shells, cloud)
    assert not cloud.models and not cloud.jobs


def test_a_model_that_is_there_already_is_taken(shells):
    there = refusal("ValidationException", "Cannot create already existing model")
    cloud = Cloud(["COMPLETED"], refused={"create_model": there})
    job, _ = begin(shells, cloud)
    assert isinstance(job, Job) and job.is_under_way


def test_scaling_that_is_refused_leaves_the_recommendations(shells):
    cloud = Cloud(["COMPLETED"], refused={"scaling": refusal("ValidationException", "no")})
    job, printed = begin(shells, cloud)
    job.follow()
    assert job.record(500).recommendations[0].scaling is None
    assert "Scaling configuration" in printed.getvalue()


def test_stops_the_models_own_jobs_alone(shells):
    cloud = Cloud()
    own = request().job_name(1)
    cloud.jobs = {
        own: "IN_PROGRESS",
        request().job_name(2): "COMPLETED",
        own.replace("sentence-embedder-", "sentence-embedder-int8-"): "IN_PROGRESS",
    }
    shell, _ = shells(cloud)
    assert stop_jobs(shell, "sentence-embedder") == (own,)


def test_refuses_types_whose_quota_is_nothing(shells):
    quota = {"QuotaName": "ml.g5.xlarge for endpoint usage", "QuotaCode": "L-1", "Value": 0.0}
    shell, _ = shells(Cloud(quotas=[quota]))
    with pytest.raises(RoundhouseError, match=r"quota is 0 instances for endpoints.*L-1"):
        require_quotas(shell, ["ml.g5.xlarge", "ml.g5.2xlarge"])


def test_a_job_goes_on_where_quotas_are_not_known(shells):
    cloud = Cloud()

    def denied(name):
        raise refusal("AccessDeniedException", "not authorized")

    cloud.get_paginator = denied
    shell, printed = shells(cloud)
    require_quotas(shell, ["ml.g5.xlarge"])
    assert "Quotas are not known" in printed.getvalue()
