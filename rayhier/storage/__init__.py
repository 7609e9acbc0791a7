"""File formats and where files are stored. Bulk data is parquet and safetensors; one conditional put publishes it."""
