"""The local cloud: an AWS account on 127.0.0.1 whose endpoints, scaling and builds really run.

In come AWS's requests, out go its answers and processes of this machine. `roundhouse up` starts it
inside MiniStack; it imports onboarding alone.
"""
