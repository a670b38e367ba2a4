"""What the stack of a text generator's endpoint holds, as plain data."""
