"""The CDK side of an onboarding tree: a stage for each environment, a stack for each endpoint.

In come deployments of `onboarding`, out go props of `roundhouse_cdk` and templates. `app.py` calls
it. `*_stack.py` deploys, `*_stage.py` gathers, the other modules compute properties purely.
"""
