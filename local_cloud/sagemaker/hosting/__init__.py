"""Models, endpoint configs and endpoints, their fleets and their updates.

In come their operations, out go endpoints whose variants answer, or roll back.
"""
