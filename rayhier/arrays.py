"""Names of the numpy arrays that travel between the parts; shapes stand in the names of variables (`vector_NM`)."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]
"""Measures and what is made of them."""
Names = npt.NDArray[np.object_]
"""Ids, as Python strings."""
