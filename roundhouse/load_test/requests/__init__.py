"""What is sent, and where: bodies, destinations, signatures."""
