"""Formats and places of files. Bulk data is parquet and safetensors; a put-if-absent publishes an artifact."""
