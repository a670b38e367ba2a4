"""What `roundhouse init` finds in a source: its task, its inputs, its sizes, its digest."""
