"""The local cloud.

An AWS account on 127.0.0.1, MiniStack with SageMaker, scaling and builds that really run.
"""
