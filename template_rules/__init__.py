"""CloudFormation checks of SageMaker deployments, for whole cloud assemblies.

In comes the folder of a `cdk synth`, out go findings with template, line and way out. `deploy` and
`make check` call it; it imports onboarding and cfn-lint alone.
"""

from template_rules.findings import cfn_lint_rules, check
from template_rules.templates import Finding

__all__ = ["Finding", "cfn_lint_rules", "check"]
