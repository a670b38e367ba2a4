"""What `make bench BENCH=text_generation` measures."""
