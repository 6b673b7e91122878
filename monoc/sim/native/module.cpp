#include <nanobind/nanobind.h>

#include "alu/bind.hpp"
#include "bind.hpp"

NB_MODULE(_core, m) {
  m.doc() = "gfx950 functional simulator core";
  m.attr("REVISION") = 2;  // of what Python calls; monoc/sim/simulator.py asks for it
  monoc::sim::bind_machine(m);
  monoc::sim::alu::bind_alu(m);
}
