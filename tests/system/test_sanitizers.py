"""The native scan under AddressSanitizer and UndefinedBehaviorSanitizer: no read outside of its arrays."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "rayhier" / "search" / "native" / "scan.cpp"
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g", "-std=c++17", "-shared", "-fPIC"]
SCANS = """
import numpy as np
import rayhier_native
from rayhier.search.native.reference import CodedFile, codes_of

rng = np.random.default_rng(0)
for m in (1, 7, 64, 65, 384, 1023):
    size = rng.integers(0, 9, 5)
    vectors = rng.normal(size=(int(size.sum()), m)).astype(rng.choice([np.float16, np.float32]))
    lower = rng.integers(-1, 5, len(vectors))
    file = CodedFile(vectors, *codes_of(vectors), None, np.arange(5), size, lower)
    rows = rayhier_native.CodedRows(m, 5, [tuple(file)] * 2)
    queries, leaves = rng.normal(size=(4, m)).astype(np.float32), rng.integers(-1, 7, (4, 3))
    queries[0, 0] = np.nan
    for kernel in rayhier_native.kernels():
        for k, listed in ((0, 0), (3, 5), (100, 7)):
            rows.scan(queries, leaves, k, listed, rng.random(rows.count) < 0.5, 2, kernel)
            rows.scan(queries, None, k, listed, None, 1, kernel)
print("scanned")
"""


@pytest.mark.slow
def test_the_kernels_under_sanitizers(tmp_path):
    pybind11, compiler = pytest.importorskip("pybind11"), shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs g++ on Linux")
    library = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    includes = [f"-I{pybind11.get_include()}", f"-I{sysconfig.get_path('include')}"]
    made = tmp_path / f"rayhier_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run([compiler, *SANITIZED, *includes, str(SOURCE), "-o", str(made), "-pthread"], check=True)
    # Python itself never gives all memory back.
    environment = {"LD_PRELOAD": library.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    environment = {**os.environ, **environment, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    ran = subprocess.run([sys.executable, "-c", SCANS], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout == "scanned\n"
