"""What is measured of an engine, and what follows from it: accuracy with its interval, speed with
its noise, the decision.
"""
