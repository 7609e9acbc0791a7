"""What big-ann-benchmarks' runner imports, as neurips23/streaming/rayhier/streaming.py of a checkout."""

from rayhier.adapters.big_ann import RayhierStreamingANN

__all__ = ["RayhierStreamingANN"]
