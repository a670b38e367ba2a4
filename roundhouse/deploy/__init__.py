"""Deployment: from an onboarding tree to deployed stacks.

In come a tree and a session; out go images, engines, checks and stacks. `deploy`, `destroy` and
`prune` call it.
"""
