"""The native scan and BM25 under AddressSanitizer and UndefinedBehaviorSanitizer: no read outside of its arrays."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "rayhier" / "search" / "native").glob("*.cpp"))
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g1", "-std=c++17"]
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
WORDS = """
import numpy as np
import rayhier_native

rng, rows = np.random.default_rng(0), 9_000
for kind in (np.uint16, np.uint32):
    size = np.minimum(rng.zipf(1.2, 50), rows).astype(np.int32)
    begin = np.cumsum(size) - size
    row = np.concatenate([np.sort(rng.choice(rows, one, replace=False)) for one in size]).astype(np.int32)
    words, part = np.sort(rng.integers(0, 1 << 63, 50).astype(np.uint64)), rng.random(99).astype(np.float32)
    most = np.ones(50, np.float32)
    good = [words, size, begin, most, row, rng.integers(0, 99, len(row)).astype(kind), part, 1.5, rows, 0, rows]
    damaged = [good, [*good[:10], rows - 9], [*good[:9], 5, rows], [*good[:4], rng.permutation(row), *good[5:]]]
    damaged += [[*good[:4], rng.integers(-(1 << 31), 1 << 31, len(row)).astype(np.int32), *good[5:]]]
    damaged += [[*good[:5], rng.integers(0, 1 << 16, len(row)).astype(kind), *good[6:]]]
    damaged += [[words[::-1].copy(), *good[1:]], [*good[:3], np.full(50, np.nan, np.float32), *good[4:]]]
    damaged += [[words, size, rng.permutation(begin), *good[3:]], [words, size, begin + len(row), *good[3:]]]
    damaged += [[words, size, begin - (1 << 62), *good[3:]], [words, -size, *good[2:]]]
    for arrays in damaged:
        lists = rayhier_native.WordLists([tuple(arrays)] * 2, [(words, size)], 3 * rows)
        for k in (0, 1, 10, 1 << 60):
            for keep in (None, rng.random(2 * rows) < 0.5):
                for threads in (1, 3):
                    try:
                        hashes = np.append(rng.choice(words, 99), np.uint64(7))
                        lists.best(hashes, [0, 60, 40, 0], k, 4, keep, None, 0, threads)
                    except ValueError as error:
                        assert "begins" in str(error)
    try:
        rayhier_native.WordLists([tuple([*good[:4], row[1:].copy(), *good[5:]])], [], 1)
    except ValueError:
        continue
    raise AssertionError
print("searched")
"""


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    pybind11, compiler = pytest.importorskip("pybind11"), shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs g++ on Linux")
    libraries = [  # one throws what the other catches
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    includes = [f"-I{pybind11.get_include()}", f"-I{sysconfig.get_path('include')}"]
    folder = tmp_path_factory.mktemp("sanitized")
    made = folder / f"rayhier_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(
        [compiler, *SANITIZED, *includes, *map(str, SOURCES), "-o", str(made), "-shared", "-fPIC", "-pthread"],
        check=True,
    )
    # Python itself never gives all memory back.
    environment = {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    return {**os.environ, **environment, "PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.mark.slow
@pytest.mark.parametrize(("script", "said"), [(SCANS, "scanned"), (WORDS, "searched")])
def test_native_code_under_sanitizers(sanitized, tmp_path, script, said):
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=sanitized)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout == f"{said}\n"
