"""SSH tunnels to servers."""
