"""AWS for the command: clients, and their failures as sentences."""
