"""How long what is not needed stays: rules of the artifact bucket and of the image repositories."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_s3 as s3

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec

SOURCE_DAYS = 90
"""A build's source is its content's address: whoever needs one again uploads it again."""
CAPTURE_DAYS = 30
"""Captures are requests of users: kept as long as a drift review needs, no longer."""
ANSWER_DAYS = 7
"""Whoever asked an asynchronous endpoint fetches the answer within a week; the request is of no use
beyond it.
"""
JOB_DAYS = 30
"""What an interrupted training job left is gone on from within days, or begun anew."""
NONCURRENT_DAYS = 30
"""The way back: what was deleted, or written over, can be restored for so long."""
PRIVATE_NONCURRENT_DAYS = 1
"""What users sent and got is gone when it is deleted: a day is the least that S3 knows."""
UPLOAD_DAYS = 7
UNTAGGED_IMAGE_DAYS = 7
KEPT_IMAGES = 50
"""ECR cannot know which tags are deployed. A tag is made when an image's content changes, and one
deploy then moves every
endpoint to the newest: fifty such changes ago is beyond any rollback."""


def bucket_rules(environment: EnvironmentSpec) -> list[s3.LifecycleRule]:
    """Rules of the artifact bucket. An engine or network expires only under the mark of `roundhouse
    prune`.

    S3 counts the days from an object's creation, not from its tag: so prune marks by a copy in
    place, which begins anew.
    """
    tag, value = names.UNREFERENCED_TAG
    unreferenced = Duration.days(environment.unreferenced_engine_days)
    marked = {"Engines": names.ENGINES_PREFIX, "Networks": names.NETWORKS_PREFIX}
    private = {
        "Captures": (names.CAPTURES_PREFIX, CAPTURE_DAYS),
        "Answers": (names.ANSWERS_PREFIX, ANSWER_DAYS),
        "Requests": (names.REQUESTS_PREFIX, ANSWER_DAYS),
    }
    return [
        s3.LifecycleRule(
            id="Sources", prefix=f"{names.SOURCES_PREFIX}/", expiration=Duration.days(SOURCE_DAYS)
        ),
        s3.LifecycleRule(
            id="Jobs", prefix=f"{names.JOBS_PREFIX}/", expiration=Duration.days(JOB_DAYS)
        ),
        *(
            s3.LifecycleRule(
                id=f"Unreferenced{id}",
                prefix=f"{prefix}/",
                tag_filters={tag: value},
                expiration=unreferenced,
            )
            for id, prefix in marked.items()
        ),
        *(
            s3.LifecycleRule(
                id=id,
                prefix=f"{prefix}/",
                expiration=Duration.days(days),
                noncurrent_version_expiration=Duration.days(PRIVATE_NONCURRENT_DAYS),
            )
            for id, (prefix, days) in private.items()
        ),
        s3.LifecycleRule(
            id="Noncurrent", noncurrent_version_expiration=Duration.days(NONCURRENT_DAYS)
        ),
        s3.LifecycleRule(
            id="Uploads",
            abort_incomplete_multipart_upload_after=Duration.days(UPLOAD_DAYS),
            expired_object_delete_marker=True,
        ),
    ]


def image_rules() -> list[ecr.LifecycleRule]:
    """Rules of an image repository."""
    return [
        ecr.LifecycleRule(
            rule_priority=1,
            description="What lost its tag is a push that did not end",
            tag_status=ecr.TagStatus.UNTAGGED,
            max_image_age=Duration.days(UNTAGGED_IMAGE_DAYS),
        ),
        ecr.LifecycleRule(
            rule_priority=2,
            description=f"The newest {KEPT_IMAGES}",
            tag_status=ecr.TagStatus.TAGGED,
            tag_pattern_list=["*"],
            max_image_count=KEPT_IMAGES,
        ),
    ]
