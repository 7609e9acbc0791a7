"""Every format on storage. Bulk data is parquet and safetensors; what commits it is one conditional put."""
