"""`roundhouse recommend`: SageMaker Inference Recommender's jobs beside our own measurements."""
