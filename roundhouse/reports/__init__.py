"""Pages about a model as HTML: the card of a text generator."""
