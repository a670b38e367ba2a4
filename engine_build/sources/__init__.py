"""Pinned sources: fetched, read and exported, or refused in a sentence."""
