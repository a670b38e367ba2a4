"""CloudFormation checks of SageMaker deployments, for whole cloud assemblies."""

from template_rules.findings import cfn_lint_rules, check
from template_rules.templates import Finding

__all__ = ["Finding", "cfn_lint_rules", "check"]
