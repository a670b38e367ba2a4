"""Dashboards as plain data: the graphs, the lines in them, and how they lie on CloudWatch's grid."""
