"""The local cloud: an AWS account on 127.0.0.1, MiniStack with SageMaker, scaling and builds that
really run.
"""
