"""What a load test leaves behind: the result as plain values, its words, charts and page."""
