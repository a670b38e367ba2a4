"""What benchmarks of servers share.

Candidates, their load, paired rounds, and the programs that stand against ours.
"""
