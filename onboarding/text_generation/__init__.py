"""Text generators: their model files, checkpoints, and the plan of what would serve them.

In come a spec, a checkpoint's headers and rows of GPUs; out go keys, a plan and a deployment.
`generation_resolve` and the builds call it.
"""
