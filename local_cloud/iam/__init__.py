"""What AWS's access control knows and MiniStack's does not: OIDC tokens, more condition keys.

In comes a request with its role, out goes whether it is allowed. The emulator calls it.
"""
