"""Type names of the numpy arrays that modules pass on; variable names end in the array's shape (`vector_NM`)."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]
"""Values of measures such as recall, and statistics computed from them."""
Names = npt.NDArray[np.object_]
"""Ids of documents or queries, as Python strings."""
