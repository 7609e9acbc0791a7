"""The parts that answer requests: engine, shard groups and cross-encoder, in this process or in deployments."""
