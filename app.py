"""Synthesises one stage an environment: `npx cdk synth [-c env=NAME] [-c endpoint=NAME,NAME]`."""

from roundhouse.cdk_app import add_environments, create_app

app = create_app()
stages = add_environments(app)  # by environment; add stacks of your own below
app.synth()
