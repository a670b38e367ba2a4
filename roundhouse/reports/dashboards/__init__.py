"""Our dashboards as pictures: their own JSON, evaluated on a synthetic day, drawn as CloudWatch
lays it out.
"""
