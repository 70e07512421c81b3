"""The configuration: strict models, where they come from, and which source wins."""
