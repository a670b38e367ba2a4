"""Rules of a whole cloud assembly, one module for each kind of resource.

In come templates with resolved properties, out go findings. `template_rules.findings` calls them.
"""
