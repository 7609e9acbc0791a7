"""What answers requests: the engine, shard groups and the cross-encoder, here or behind deployments."""
