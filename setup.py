"""Build of the native scan and the native BM25. pyproject.toml has all other metadata."""

import sys

import pybind11
from setuptools import Extension, setup

NATIVE = "rayhier/search/native"

setup(
    ext_modules=[
        Extension(
            "rayhier_native",
            [f"{NATIVE}/scan.cpp", f"{NATIVE}/words.cpp", f"{NATIVE}/columns.cpp"],
            depends=[f"{NATIVE}/kernels.h", f"{NATIVE}/threads.h"],
            include_dirs=[pybind11.get_include()],
            language="c++",
            extra_compile_args=["-std=c++17", "-O3", "-g0", "-fvisibility=hidden", "-pthread"],
            extra_link_args=["-Wl,-s"] if sys.platform == "linux" else [],  # no symbols, so that the wheel is small
            optional=True,  # without a compiler, numpy searches
        )
    ]
)
