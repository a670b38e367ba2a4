"""The CDK side: `*_stack.py` deploys, `*_stage.py` gathers, the rest computes CloudFormation properties purely."""
