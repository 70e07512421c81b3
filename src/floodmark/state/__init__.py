"""The stored state of each table: manifests, watermark, copies, lease, legacy watermarks."""
