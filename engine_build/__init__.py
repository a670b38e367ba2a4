"""Turns a model's spec into a published engine: options -> order -> steps -> commands -> run.

In come an onboarding tree, a key and a source; out go networks, an archive, its record and a log.
It is a program of its own (`python -m engine_build`), which CodeBuild, training jobs and the local
cloud run; of it the command imports nothing but what a build is asked for.
"""
