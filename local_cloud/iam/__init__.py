"""What AWS's access control knows and MiniStack's does not: OIDC tokens, more condition keys."""
