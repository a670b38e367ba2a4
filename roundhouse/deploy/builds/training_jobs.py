"""SageMaker training jobs that build: what one says, and an end of those that run."""

from __future__ import annotations

from typing import Any

from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.builds.log import job_text, last_line

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
LISTED = 100
"""The most jobs of one answer."""


def own_words(clients: Clients, job: str) -> str:
    """The last line of what a job has said so far; empty when nothing is known."""
    return last_line(job_text(clients, LOG_GROUP, job))


def stop_all(sagemaker: Client, name_contains: str) -> None:
    """Stops the running jobs whose names contain this: all of them, though SageMaker lists ten
    unless asked for more.
    """
    found: list[dict[str, Any]] = []
    page: dict[str, str] = {}
    with calling("Looking for running training jobs"):
        while True:
            answer = sagemaker.list_training_jobs(
                NameContains=name_contains, StatusEquals="InProgress", MaxResults=LISTED, **page
            )
            found.extend(answer["TrainingJobSummaries"])
            if not answer.get("NextToken"):
                break
            page = {"NextToken": answer["NextToken"]}
    for job in found:
        with calling(f"Stopping training job {job['TrainingJobName']}"):
            sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])
