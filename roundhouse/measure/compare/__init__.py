"""Candidates of one model beside each other: built, deployed, loaded, judged and priced."""
