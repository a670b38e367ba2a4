"""What `roundhouse new` finds in a source: its task, its inputs, its sizes, its digest."""
