"""A small GitHub on 127.0.0.1: pull requests, issues, workflow runs, environments, OIDC tokens.

Its repositories are real git; `python -m local_cloud` does not start it.
"""
