"""File formats and places of files. Bulk data is parquet and safetensors; a conditional put publishes an artifact."""
