"""What a phase came to: its numbers, its verdict, and the rate that is tried next."""
