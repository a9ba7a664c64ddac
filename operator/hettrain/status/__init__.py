"""Children to status: pure."""
