"""What a served model is, whatever carries its requests: data plane, multi-model, metrics,
failures.
"""
