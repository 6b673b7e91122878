#pragma once

#include <nanobind/nanobind.h>

namespace monoc::sim {

void bind_machine(nanobind::module_& m);

}  // namespace monoc::sim
