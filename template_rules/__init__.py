"""CloudFormation checks of SageMaker deployments, for whole cloud assemblies."""

from template_rules.findings import Finding, check

__all__ = ["Finding", "check"]
