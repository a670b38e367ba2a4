"""Where networks come from: pinned sources, fetched, read and exported, or refused in a sentence."""
