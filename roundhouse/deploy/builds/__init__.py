"""Engines built in an environment: started, followed, recorded.

In come requests for what is missing, out go lock entries, or what was not built. `build` and
`deploy` call it.
"""
