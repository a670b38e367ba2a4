"""Turns a load test of a deployed endpoint into a capacity in the lock, or says why it is none."""
