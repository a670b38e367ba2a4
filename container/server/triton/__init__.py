"""Triton behind the HTTP server: it reads only what this package has checked and written again."""
