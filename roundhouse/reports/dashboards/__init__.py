"""Our dashboards as pictures.

Their own JSON, evaluated on a synthetic day, drawn as CloudWatch lays it out.
"""
