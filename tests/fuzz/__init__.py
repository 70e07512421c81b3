"""Random operators: what they may do to a source, a lake, a warehouse and a configuration."""
