"""The command: what a person or a pipeline does with an onboarding tree and an account.

In come options and files; out go stacks, locks, reports and exit codes. It may import every package
but benchmarks, and does so when a command needs one.
"""
