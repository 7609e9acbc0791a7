"""What ann-benchmarks' runner imports, as ann_benchmarks/algorithms/rayhier/module.py of a checkout."""

from rayhier.adapters.ann_benchmarks import RayhierANN

__all__ = ["RayhierANN"]
