"""The word before the one line that carries a process's answer, among whatever else it says."""

MARK = "ROUNDHOUSE-REFERENCE "
