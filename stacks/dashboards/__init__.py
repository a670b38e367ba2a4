"""Dashboards as plain data: graphs, the lines in them, and their places on the grid."""
