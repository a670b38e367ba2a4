"""The shared schema: what files say, what follows from them, and what is refused.

In come YAML files, locks and platform data; out go values: specs, keys, deployments, plans and
faults. Pure: it calls no AWS and no runtime. Every other package imports it, and it imports none.
"""
