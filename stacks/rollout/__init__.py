"""How a new version of an endpoint takes over, and how long its instances may take."""
