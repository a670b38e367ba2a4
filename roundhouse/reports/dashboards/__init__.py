"""Our dashboards as pictures: their JSON, evaluated on a synthetic day, as CloudWatch draws it."""
