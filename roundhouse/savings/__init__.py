"""Return on investment: what runs against what the files propose."""
