"""PostgreSQL as a target."""
