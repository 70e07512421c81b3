"""The configuration: models, loading, credentials and TLS."""
