// Run state: waves, CTAs, and what a host thread carries while it interprets.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory.hpp"
#include "op.hpp"

namespace monoc::sim {

class Program;
class Machine;
struct LdsMarks;
struct Observation;
class Handoff;

enum class Status : uint8_t { running, barrier, ended };
enum class Stop : uint8_t { none, yield, barrier, end, fault, switch_loop };

inline constexpr int kMaxVgprs = 512;
inline constexpr int kMaxWaves = 16;  // of a CTA

// Poison (never-written values) of registers: one bit a lane for VGPRs, one bit a bit for SGPRs. Kept only while a
// wave holds any; `live` selects the tracking interpreter loop.
struct Poison {
  uint64_t v[kMaxVgprs] = {};
  uint32_t s[128] = {};
  bool scc = false;
};

struct Cta;

// Observers: what a wave requested and did not wait for yet, until it first waits for another CTA's work. Memory
// accesses count down in issue order (`s_waitcnt vmcnt`), so `issued` is a queue.
struct Flight {
  struct Access {
    uint32_t bytes = 0;     // from weights
    bool handoff = false;   // a device- or system-scope load of hand-off memory
  };
  std::vector<Access> issued;
  size_t first = 0;  // oldest one not waited for
  Access pending;    // of the instruction that runs
  uint64_t bytes = 0, peak = 0;
  uint64_t work = 0;  // instructions outside poll loops
  bool open = true;   // no hand-off waited for yet
};

struct ThreadContext {
  Machine* machine = nullptr;
  const MemoryMap* map = nullptr;
  Observation* observe = nullptr;   // null: counts of bytes are off
  Handoff* handoff = nullptr;       // null: no manifest
  uint16_t* buffer_cache = nullptr;  // per op of the running program: the buffer last hit
  std::atomic<uint64_t> changes{0};  // events that can let a waiting wave go on
  uint64_t executed = 0;
  int id = 0;
  bool careful = false;  // the running CTA has been visited often: a store of what is there already is no change
  alignas(64) Lanes scratch[48];

  void changed() { changes.store(changes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
};

struct alignas(64) Wave {
  const Op* pc = nullptr;
  Stop stop = Stop::none;
  Status status = Status::running;
  bool yielded = false;   // last stopped at an s_sleep
  bool poisoned = false;  // `poison` may hold set bits
  uint32_t scc = 0;
  Lanes* vgpr = nullptr;
  ThreadContext* tc = nullptr;
  Cta* cta = nullptr;
  const Program* program = nullptr;
  const Op* ops = nullptr;
  const Lanes* consts = nullptr;
  Poison* poison = nullptr;
  uint32_t mode = alu::kModeDefault;
  int id = 0;
  uint64_t clock = 0;           // instructions executed, a stand-in for time
  uint64_t clock_read = 0;      // what it was when the wave last read it
  uint32_t drains = 0;            // how often the wave has waited for all its memory accesses
  // What the wave last loaded from memory: a hang report names it.
  const Op* last_load = nullptr;
  uint64_t last_address = 0;
  uint64_t last_value = 0;
  Flight* flight = nullptr;           // observers
  LdsMarks* marks = nullptr;          // LDS races; null: not looked for
  uint8_t* scratch_mem = nullptr;     // [64 lanes][scratch bytes of a lane]
  uint8_t* scratch_poison = nullptr;  // a byte a dword of it, made when a poisoned value is spilled
  alignas(64) uint32_t sgpr[128] = {};

  uint64_t& exec() { return *reinterpret_cast<uint64_t*>(sgpr + kExec); }
  uint64_t exec() const { return *reinterpret_cast<const uint64_t*>(sgpr + kExec); }
  uint64_t read64(unsigned index) const {
    uint64_t value;
    std::memcpy(&value, sgpr + index, 8);
    return value;
  }
  void write64(unsigned index, uint64_t value) { std::memcpy(sgpr + index, &value, 8); }
};

struct Cta {
  uint32_t rank = 0, linear = 0, x = 0, y = 0, z = 0;
  uint32_t lds_bytes = 0;
  int waves = 0, live = 0, at_barrier = 0;
  uint8_t* lds = nullptr;
  uint8_t* lds_written = nullptr;  // a byte a dword: bits 0..3 its written bytes; null: not tracked
  Wave* wave = nullptr;
  uint32_t* op_counts = nullptr;  // observers: executions of each op
  uint64_t* bytes = nullptr;      // observers: loaded, stored
  uint32_t idle = 0, skip = 0;    // fruitless visits, and how many to leave out
  bool started = false, done = false;
  bool handed = false;            // observers: a wave of it has waited for a hand-off
  bool quiet = false;             // its last visit changed no memory
  uint32_t visits = 0;
  // Cycle detection while nothing changes (Brent).
  uint64_t cycle_hash = 0, cycle_changes = ~0ull;
  uint32_t cycle_age = 0, cycle_limit = 1;
  bool cycling = false;
  int launch_index = 0;
  const struct RankLaunch* launch = nullptr;
};

// Reports a finding of a check and stops the wave. `lane` -1: the whole wave.
void report(Wave& w, const Op& op, const char* kind, const char* message, int lane = -1, uint64_t address = 0);
// The same with a number put where the message says %llu.
void report_number(Wave& w, const Op& op, const char* kind, const char* message, uint64_t number, int lane = -1,
                   uint64_t address = 0);

Poison& ensure_poison(Wave& w);

}  // namespace monoc::sim
