"""INT8 and FP8 as Q/DQ nodes: which layers, which ranges, and what each layer costs.

In come a float network and calibration samples, out goes a Q/DQ network. The quantize, half
precision and placement steps call it.
"""
