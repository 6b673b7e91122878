#include <nanobind/nanobind.h>

#include "alu/bind.hpp"
#include "bind.hpp"

NB_MODULE(_core, m) {
  m.doc() = "gfx950 functional simulator core";
  monoc::sim::bind_machine(m);
  monoc::sim::alu::bind_alu(m);
}
