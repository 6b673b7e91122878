// Registers the alu_* test hooks on the native module.
#pragma once

#include <nanobind/nanobind.h>

namespace monoc::sim::alu {

void bind_alu(nanobind::module_& m);

}  // namespace monoc::sim::alu
