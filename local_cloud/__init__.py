"""The local cloud: an AWS account on 127.0.0.1 whose endpoints, scaling and builds really run."""
