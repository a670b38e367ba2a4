"""The CDK side.

`*_stack.py` deploys, `*_stage.py` gathers, its folders compute CloudFormation properties purely.
"""
