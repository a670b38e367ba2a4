"""One endpoint as plain data: models, config, role, and what must be said before it is deployed.

In comes a deployment, out go props, findings and the steps of a change. Its stack calls it, and
`deploy` asks for the steps.
"""
