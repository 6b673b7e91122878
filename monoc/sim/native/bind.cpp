// Python bindings of the interpreter; the typed front end is monoc/sim/simulator.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.hpp"
#include "machine.hpp"

namespace nb = nanobind;

namespace monoc::sim {
namespace {

using OperandTuple = std::tuple<int, int64_t, int, int, std::string>;
using ModifierTuple = std::tuple<std::string, int64_t>;
using LaunchTuple = std::tuple<int, Program*, nb::bytes, std::array<uint32_t, 3>, std::array<uint32_t, 3>, uint32_t>;

void set_entry(Program& p, nb::dict values) {
  Entry& e = p.entry;
  auto number = [&](const char* key) -> uint32_t { return values.contains(key) ? nb::cast<uint32_t>(values[key]) : 0; };
  e.vgprs = number("vgprs");
  e.accum_offset = number("accum_offset");
  e.lds_bytes = number("lds_bytes");
  e.scratch_bytes = number("scratch_bytes");
  e.kernarg_bytes = number("kernarg_bytes");
  e.user_sgprs = number("user_sgprs");
  e.preload_length = number("preload_length");
  e.preload_offset = number("preload_offset");
  e.private_buffer = number("private_buffer");
  e.dispatch_ptr = number("dispatch_ptr");
  e.queue_ptr = number("queue_ptr");
  e.kernarg_ptr = number("kernarg_ptr");
  e.dispatch_id = number("dispatch_id");
  e.flat_scratch_init = number("flat_scratch_init");
  e.private_size = number("private_size");
  e.group_x = number("group_x");
  e.group_y = number("group_y");
  e.group_z = number("group_z");
  e.group_info = number("group_info");
  e.mode = number("mode");
  p.default_mode = number("default_mode");
  if (e.vgprs > uint32_t(kMaxVgprs)) throw std::invalid_argument("a wave has at most 512 vector registers");
}

// None, or (message, unknown mnemonic).
nb::object append(Program& p, const std::string& mnemonic, const std::string& text, const std::vector<OperandTuple>& operands,
                  const std::vector<ModifierTuple>& modifiers, uint32_t line, uint32_t file, uint32_t loc) {
  Insn insn;
  insn.mnemonic = mnemonic;
  insn.text = text;
  insn.line = line;
  for (const auto& [kind, value, count, mods, name] : operands)
    insn.operands.push_back({static_cast<OperandKind>(kind), value, count, mods, name});
  for (const auto& [key, value] : modifiers) insn.modifiers.emplace_back(key, value);
  Op op;
  try {
    decode(p, insn, op);
  } catch (const DecodeError& error) {
    return nb::make_tuple(std::string(error.what()), error.unknown);
  }
  p.ops.push_back(op);
  p.texts.push_back({mnemonic, text, line, file, loc});
  return nb::none();
}

nb::dict result_dict(const Result& r) {
  nb::dict out;
  nb::list findings, waiting, counts, bytes;
  for (const Finding& f : r.findings) {
    const OpText& t = f.program->texts[f.op];
    nb::dict details;
    std::string message = f.message;
    size_t region = message.find('|'), text = message.find('|', region + 1);
    if (f.kind == "handoff" && text != std::string::npos) {  // "violation|region|text", see handoff.cpp
      details["violation"] = message.substr(0, region);
      details["region"] = message.substr(region + 1, text - region - 1);
      message = "region " + message.substr(region + 1, text - region - 1) + ": " + message.substr(text + 1);
    }
    findings.append(nb::make_tuple(f.kind, message, f.program->name, t.text, t.line, t.file, t.loc, f.rank, f.cta, f.wave, f.lane,
                                   f.address, f.buffer, details));
  }
  for (const Waiting& w : r.waiting) {
    const OpText& t = w.program->texts[w.op];
    waiting.append(nb::make_tuple(w.rank, w.cta, w.wave, w.why, t.text, t.line, t.file, t.loc, w.address, w.value, w.buffer));
  }
  for (const CtaCounts& c : r.counts) {
    nb::bytes raw(reinterpret_cast<const char*>(c.ops.data()), c.ops.size() * 4);
    counts.append(nb::make_tuple(c.rank, c.cta, raw, c.bytes[0], c.bytes[1], c.busiest, c.in_flight));
  }
  if (!r.observations.empty()) {
    size_t buffers = r.observations[0].buffers.size();
    for (size_t b = 0; b < buffers; ++b)
      for (int policy = 0; policy < 8; ++policy) {
        uint64_t moved[2] = {0, 0};
        for (const Observation& o : r.observations)
          for (int d = 0; d < 2; ++d) moved[d] += o.buffers[b][size_t(policy)][size_t(d)];
        if (moved[0] | moved[1]) bytes.append(nb::make_tuple(b, policy, moved[0], moved[1]));
      }
    nb::list by_op;
    for (size_t l = 0; l < r.observations[0].op_bytes.size(); ++l) {
      std::vector<uint64_t> sum(r.observations[0].op_bytes[l].size(), 0);
      for (const Observation& o : r.observations)
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += o.op_bytes[l][i];
      by_op.append(nb::bytes(reinterpret_cast<const char*>(sum.data()), sum.size() * 8));
    }
    out["op_bytes"] = by_op;
  }
  out["buffer_names"] = r.buffer_names;
  out["findings"] = findings;
  out["waiting"] = waiting;
  out["hang"] = r.hang;
  out["executed"] = r.executed;
  out["counts"] = counts;
  out["bytes"] = bytes;
  return out;
}

nb::dict launch(Machine& machine, const std::vector<LaunchTuple>& launches, uint64_t seed, int threads, bool lds_poison,
                bool vgpr_poison, bool observe, uint64_t limit, uint32_t lds_margin, bool lds_races) {
  std::vector<RankLaunch> all;
  for (const auto& [rank, program, kernarg, grid, block, lds] : launches) {
    RankLaunch one;
    one.rank = rank;
    one.program = program;
    one.kernarg.assign(reinterpret_cast<const uint8_t*>(kernarg.c_str()),
                       reinterpret_cast<const uint8_t*>(kernarg.c_str()) + kernarg.size());
    one.grid = grid;
    one.block = block;
    one.dynamic_lds = lds;
    all.push_back(std::move(one));
  }
  Options options;
  options.seed = seed;
  options.threads = threads;
  options.lds_poison = lds_poison;
  options.vgpr_poison = vgpr_poison;
  options.lds_margin = lds_margin;
  options.lds_races = lds_races;
  options.observe = observe;
  options.limit = limit;
  bool signalled = false;
  options.interrupted = [&signalled] {
    nb::gil_scoped_acquire acquire;
    return signalled = PyErr_CheckSignals() != 0;
  };
  Result result;
  {
    nb::gil_scoped_release release;
    result = machine.launch(all, options);
  }
  if (signalled) throw nb::python_error();
  return result_dict(result);
}

using RegionTuple = std::tuple<std::string, uint64_t, uint64_t, int, int, int, std::vector<int>, bool, std::vector<int>, bool,
                               std::vector<int>, bool, int, int, uint64_t>;

void set_regions(Machine& machine, const std::vector<RegionTuple>& regions, bool late) {
  if (regions.empty()) return machine.set_handoff(nullptr);
  std::vector<RegionDeclaration> all;
  for (const auto& [name, base, bytes, rank, kind, system, writers, some_writers, readers, some_readers, ranks, some_ranks, reads,
                    flag, unit] : regions) {
    RegionDeclaration d;
    d.name = name;
    d.base = base;
    d.bytes = bytes;
    d.rank = rank;
    d.kind = kind;
    d.system = system != 0;
    // A list that allows nobody (given, but empty) holds an id no CTA has.
    d.writers = some_writers && writers.empty() ? std::vector<int>{-1} : writers;
    d.readers = some_readers && readers.empty() ? std::vector<int>{-1} : readers;
    d.writer_ranks = some_ranks && ranks.empty() ? std::vector<int>{-1} : ranks;
    d.reads = reads;
    d.flag_region = flag;
    d.unit_bytes = unit;
    all.push_back(std::move(d));
  }
  machine.set_handoff(std::make_unique<Handoff>(std::move(all), late));
}

nb::object written(Machine& machine, uint64_t base) {
  int found = machine.map().find(base);
  if (found < 0) throw std::invalid_argument("no buffer is registered at this address");
  const Buffer& b = machine.map().at(found);
  const uint8_t* bits = b.written.load();
  if (!bits) return nb::none();
  return nb::bytes(reinterpret_cast<const char*>(bits), (b.size + 3 + (b.base & 3)) / 4);
}

}  // namespace

void bind_machine(nb::module_& m) {
  nb::class_<Program>(m, "Program")
      .def("__init__", [](Program* p, const std::string& name, nb::dict entry) {
        new (p) Program();
        p->name = name;
        set_entry(*p, entry);
      })
      .def("append", append)
      .def("finish", &Program::finish)
      .def("classes", [](const Program& p) {
        std::vector<int> all;
        for (const Op& op : p.ops) all.push_back(int(op.cls));
        return all;
      })
      .def("polls", [](const Program& p) {
        std::vector<bool> all;
        for (const Op& op : p.ops) all.push_back(op.flags & kPoll);
        return all;
      })
      .def("macs", [](const Program& p) {
        std::vector<uint64_t> all;
        for (const Op& op : p.ops) all.push_back(op.alu ? op.alu->mfma_macs : 0);
        return all;
      })
      .def("general", [](const Program& p) {
        std::vector<bool> all;
        for (const Op& op : p.ops) all.push_back(op.flags & kGeneral);
        return all;
      });
  nb::class_<Machine>(m, "Machine")
      .def(nb::init<int>())
      .def("add_buffer",
           [](Machine& machine, uint64_t base, uint64_t size, const std::string& name, int rank, bool written, bool output,
              bool read_only) { machine.map().add(base, size, name, rank, written, output, read_only); })
      .def("set_role",
           [](Machine& machine, uint64_t address, int role) {
             int found = machine.map().find(address);
             if (found >= 0) machine.map().at(found).role = uint8_t(role);
             return found >= 0;
           })
      .def("remove_buffer", [](Machine& machine, uint64_t base) { return machine.map().remove(base); })
      .def("mark_written", [](Machine& machine, uint64_t address, uint64_t size) { machine.map().mark_written(address, size); })
      .def("buffer_names",
           [](Machine& machine) {
             std::vector<std::string> names;
             for (int i = 0; i < machine.map().size(); ++i) names.push_back(machine.map().at(i).name);
             return names;
           })
      .def("written", written)
      .def("set_regions", set_regions)
      .def("region_traffic",
           [](const Machine& machine) {
             std::vector<std::tuple<uint64_t, uint64_t>> all;
             if (machine.handoff())
               for (const RegionTraffic& t : machine.handoff()->traffic()) all.emplace_back(t.words_written, t.words_handed);
             return all;
           })
      .def("launch", launch, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg("lds_margin") = 0,
           nb::arg("lds_races") = false);
  m.def("known_mnemonics", known_mnemonics);
  m.def("isa", [] { return std::string(alu::alu_isa()); });
}

}  // namespace monoc::sim
