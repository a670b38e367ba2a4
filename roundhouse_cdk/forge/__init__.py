"""Roles of the GitHub workflows that plan, build, deploy and promote."""
