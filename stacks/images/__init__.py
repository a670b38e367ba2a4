"""The container images: how each is built, what it is called, which one answers."""
