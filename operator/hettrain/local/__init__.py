"""`hettrain run --local`: the operator's own planning and reconcile, with processes instead of pods."""
