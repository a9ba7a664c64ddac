"""Bytes between the processes of a job. Wires belong to the process; groups are tags on them."""
