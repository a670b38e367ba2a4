"""AWS for the command: clients, and their failures as sentences.

In comes an environment, out go botocore's clients. Every module that calls AWS gets them here.
"""
