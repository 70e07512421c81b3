"""What Floodmark knows about each table: manifests, watermark, copies, lease, older layouts."""
