"""INT8 by calibration cache, for TensorRT before 11: the cache file, the calibrator that makes one,
the way to Q/DQ nodes.
"""
