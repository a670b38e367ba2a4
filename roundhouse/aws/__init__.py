"""AWS for the command.

Clients, failures as sentences, and web pages that come in place of AWS's answers.
"""
