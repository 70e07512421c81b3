"""What Floodmark talks about, as immutable values. Nothing here does any input or output."""
