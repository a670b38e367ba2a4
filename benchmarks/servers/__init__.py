"""What benchmarks of servers share: candidates, their load, paired rounds, and the programs that
stand against ours.
"""
