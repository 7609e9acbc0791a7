"""Formats and places of files. Bulk data is parquet and safetensors. A put-if-absent publishes an artifact."""
