"""Deployment: from an onboarding tree to deployed stacks."""
