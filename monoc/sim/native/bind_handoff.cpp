// Python binding of the hand-off shadow; monoc/sim/handoff.py declares the regions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.hpp"
#include "handoff.hpp"

namespace nb = nanobind;

namespace monoc::sim {

void bind_handoff(nb::module_& m) {
  nb::class_<RegionDeclaration>(m, "RegionDeclaration")
      .def(nb::init<>())
      .def_rw("name", &RegionDeclaration::name)
      .def_rw("base", &RegionDeclaration::base)
      .def_rw("bytes", &RegionDeclaration::bytes)
      .def_rw("kind", &RegionDeclaration::kind)
      .def_rw("system", &RegionDeclaration::system)
      .def_rw("rank", &RegionDeclaration::rank)
      .def_rw("writers", &RegionDeclaration::writers)
      .def_rw("readers", &RegionDeclaration::readers)
      .def_rw("writer_ranks", &RegionDeclaration::writer_ranks)
      .def_rw("reads", &RegionDeclaration::reads)
      .def_rw("flag_region", &RegionDeclaration::flag_region)
      .def_rw("unit_bytes", &RegionDeclaration::unit_bytes);
  nb::class_<Handoff>(m, "Handoff")
      .def(nb::init<std::vector<RegionDeclaration>>())
      .def("begin_launch", &Handoff::begin_launch)
      .def("traffic", [](const Handoff& h) {
        std::vector<std::tuple<uint64_t, uint64_t>> all;
        for (const RegionTraffic& t : h.traffic()) all.emplace_back(t.words_written, t.words_handed);
        return all;
      });
}

}  // namespace monoc::sim
