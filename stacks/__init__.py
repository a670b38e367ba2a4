"""The CDK side.

`*_stack.py` deploys, `*_stage.py` gathers, its rooms compute CloudFormation properties purely.
"""
