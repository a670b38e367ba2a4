"""Captured requests and answers of an endpoint, compared with its data and its source model."""
