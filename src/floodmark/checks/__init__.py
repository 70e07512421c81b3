"""The checks of `doctor`: each reports a finding and, if needed, a hint."""
