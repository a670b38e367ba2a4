"""What builds engines: projects, roles, and the state machine that starts them."""
