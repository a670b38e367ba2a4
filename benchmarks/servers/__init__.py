"""What benchmarks of servers share: contenders, their load, paired rounds, and the programs that
stand against ours.
"""
