"""How exact, fast and large engines are, and which of them is chosen.

In come answers and times, out go verdicts, latencies and a decision in one sentence. Steps call it.
"""
