#pragma once

#include <pybind11/pybind11.h>

void add_columns(pybind11::module_ &module);
