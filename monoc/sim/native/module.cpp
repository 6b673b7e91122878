#include <nanobind/nanobind.h>

NB_MODULE(_core, m) { m.doc() = "gfx950 functional simulator core"; }
