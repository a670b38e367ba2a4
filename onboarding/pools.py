"""In which order an endpoint takes its instance types."""

from __future__ import annotations

from onboarding.model_spec import EndpointSpec


def pool_priorities(endpoint: EndpointSpec) -> tuple[tuple[int, str], ...]:
    """(priority, instance type) of the endpoint's own type, always 1, and of each pool; by default
    after those before it.
    """
    found = [(1, endpoint.instance_type)]
    for pool in endpoint.instance_pools:
        after = max(priority for priority, _ in found) + 1
        found.append((after if pool.priority is None else pool.priority, pool.instance_type))
    return tuple(found)
