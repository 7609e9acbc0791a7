"""Type names of the numpy arrays that modules pass on. Variable names end in their shape: `vector_NM` is [N, M]."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]
"""Array of measures such as recall, and of statistics computed from measures."""
Names = npt.NDArray[np.object_]
"""Array of ids of documents or queries, as Python strings."""
