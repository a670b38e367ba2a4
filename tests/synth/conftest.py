"""Settings that jsii and the CDK read when they are imported."""

import os

os.environ["CDK_VALIDATION"] = "false"
os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20"
