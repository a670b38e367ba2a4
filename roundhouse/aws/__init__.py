"""AWS as the command meets it.

Its clients, what its failures mean, and pages that are not its answers.
"""
