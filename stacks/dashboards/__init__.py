"""Dashboards as plain data: graphs, the lines in them, and their positions on the grid."""
