"""The local SageMaker: models, configs, endpoints, components, invocations, training jobs.

In come its operations, out go fleets of processes that answer. The emulator and CloudFormation call
it.
"""
