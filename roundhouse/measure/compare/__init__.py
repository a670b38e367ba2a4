"""Candidates of one model beside each other: built, deployed, loaded, judged and priced.

In come a model file's grid and a demand, out goes a ranked report. `compare` calls it.
"""
