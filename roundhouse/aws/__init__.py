"""AWS as the command meets it: its clients, what its failures mean, and pages that are not its
answers.
"""
