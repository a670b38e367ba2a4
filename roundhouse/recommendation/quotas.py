"""The quotas of the instance types that a recommendation job starts."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding.aws_limits import endpoint_quota
from roundhouse.deploy.quotas import REQUEST, read_quotas
from roundhouse.errors import AwsError, RoundhouseError
from roundhouse.session import Session


def require_quotas(session: Session, instance_types: Sequence[str]) -> None:
    """Refuse types of which the account may run no endpoint instance.

    Says so and goes on where quotas cannot be read. Raises RoundhouseError.
    """
    wanted = {endpoint_quota(name): name for name in instance_types}
    try:
        quotas = read_quotas(session.clients("service-quotas"), wanted)
    except AwsError as error:
        session.report.print(f"– Quotas are not known, and the job goes on: {error}")
        return
    none_left = [quota for name, quota in sorted(quotas.items()) if quota.value < 1]
    if none_left:
        region = session.environment.region
        rows = [
            f"{wanted[quota.name]}: the account's quota is 0 instances for endpoints; name other "
            "types with --instance-type, or ask for one: "
            + REQUEST.format(code=quota.code, value=1, region=region)
            for quota in none_left
        ]
        raise RoundhouseError("\n".join(rows))
