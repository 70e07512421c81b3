"""Random actions of operators on a source, a lake, a warehouse and a configuration."""
