"""Rules of a whole tree: what one file cannot know of the others, and of AWS.

In comes a tree, out go faults with file, line and way out. `onboarding.validation` calls them.
"""
