"""Platform data as YAML: images, instance types, limits, prices, GPUs.

`onboarding.yaml_text.load_data` reads them; nothing else does.
"""
