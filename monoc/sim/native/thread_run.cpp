#include "thread_run.hpp"
#include "handoff.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>

namespace monoc::sim {
namespace {

// Instructions a wave runs before the next one of its CTA gets its turn; a wait, sleep or end comes earlier as a rule.
constexpr uint64_t kWaveSlice = 8192;
// The same in a CTA whose last visit changed nothing: likely it spins.
constexpr uint64_t kQuietSlice = 1024;
// Rounds over the waves of a CTA before the next CTA gets its turn.
constexpr int kCtaRounds = 24;
// Visits without any change anywhere before register states are compared.
constexpr int kQuietRounds = 3;
// Visits of a CTA after which its stores are compared with what they overwrite: a waiting loop may store on every turn.
constexpr uint32_t kPatience = 64;

// A wave at a wait: what it has in flight counts; behind a hand-off nothing more does.
void observe_wait(Flight& flight, bool handoff) {
  if (!flight.open) return;
  flight.peak = std::max(flight.peak, flight.bytes);
  flight.open = !handoff;
}

void observe_step(Wave& w, const Op& op) {
  Flight& flight = *w.flight;
  flight.work += !(op.flags & kPoll);
  if (!flight.open) return;
  switch (op.cls) {
    case OpClass::load:
    case OpClass::store:
    case OpClass::atomic:
    case OpClass::scratch:
      flight.issued.push_back(flight.pending);
      flight.bytes += flight.pending.bytes;
      break;
    case OpClass::wait: {
      size_t left = size_t(op.imm), end = flight.issued.size();
      if (flight.first + left >= end) break;
      bool handoff = false;
      uint64_t held = flight.bytes;
      for (; flight.first + left < end; ++flight.first) {
        flight.bytes -= flight.issued[flight.first].bytes;
        handoff = handoff || flight.issued[flight.first].handoff;
      }
      std::swap(held, flight.bytes);
      observe_wait(flight, handoff);
      flight.bytes = held;
      w.cta->handed = w.cta->handed || handoff;
      break;
    }
    case OpClass::sleep:
      observe_wait(flight, true);
      w.cta->handed = true;
      break;
    default:
      break;
  }
  flight.pending = {};
}

template <bool Count, bool Track>
void interpret(Wave& w, uint64_t budget) {
  uint32_t* counts = w.cta->op_counts;
  uint64_t n = 0;
  do {
    const Op* op = w.pc++;
    if constexpr (Track) {
      poison_step(w, *op);
      if (w.stop != Stop::none) break;
    }
    op->fn(w, *op);
    ++n;
    if constexpr (Count) {
      ++counts[op->index];
      observe_step(w, *op);
    }
    ++w.clock;
  } while (w.stop == Stop::none && n < budget);
  w.tc->executed += n;
}

}  // namespace

void run_past_end(Wave& w, const Op& op) { report(w, op, "trap", "the wave ran past the kernel's last instruction"); }

void report(Wave& w, const Op& op, const char* kind, const char* message, int lane, uint64_t address) {
  if (w.stop == Stop::fault) return;
  w.stop = Stop::fault;
  Finding finding;
  finding.kind = kind;
  finding.message = message;
  finding.program = w.program;
  finding.op = op.index;
  finding.rank = int(w.cta->rank);
  finding.cta = int(w.cta->linear);
  finding.wave = w.id;
  finding.lane = lane;
  finding.address = address;
  int found = address ? w.tc->map->find(address) : -1;
  if (found >= 0) finding.buffer = w.tc->map->at(found).name;
  w.tc->machine->add_finding(std::move(finding));
}

void report_number(Wave& w, const Op& op, const char* kind, const char* message, uint64_t number, int lane, uint64_t address) {
  char text[256];
  std::snprintf(text, sizeof text, message, static_cast<unsigned long long>(number));
  report(w, op, kind, text, lane, address);
}

void observe_bytes(Wave& w, const Buffer& buffer, const Op& op, bool store, uint64_t bytes) {
  Observation& o = *w.tc->observe;
  int index = w.tc->map->find(buffer.base);
  int policy = (op.mem.policy & 3) | (op.mem.policy & 16) >> 2;
  o.buffers[size_t(index)][size_t(policy)][store] += bytes;
  o.op_bytes[size_t(w.cta->launch_index)][op.index] += bytes;
  w.cta->bytes[store] += bytes;
  if (store) return;
  Flight::Access& access = w.flight->pending;
  if (buffer.role == kRoleWeight) access.bytes += uint32_t(bytes);
  if (buffer.role == kRoleHandoff && op.mem.policy & 16) access.handoff = true;
}

uint32_t scratch_bytes(const Wave& w) { return w.program->entry.scratch_bytes; }
uint8_t* new_scratch_poison(Wave& w) { return new uint8_t[size_t(64) * scratch_bytes(w) / 4 + 64](); }

uint64_t state_hash(const Wave& w) {
  uint64_t h = 0x9e3779b97f4a7c15ull ^ reinterpret_cast<uint64_t>(w.pc) ^ (uint64_t(w.scc) << 61) ^ (uint64_t(w.status) << 59);
  auto mix = [&](const void* data, size_t bytes) {
    const uint64_t* p = static_cast<const uint64_t*>(data);
    uint64_t a = h, b = ~h, c = h * 3, d = h * 5;
    for (size_t i = 0; i + 4 <= bytes / 8; i += 4) {
      a = (a ^ p[i]) * 0xff51afd7ed558ccdull;
      b = (b ^ p[i + 1]) * 0xc4ceb9fe1a85ec53ull;
      c = (c ^ p[i + 2]) * 0x9fb21c651e98df25ull;
      d = (d ^ p[i + 3]) * 0xd6e8feb86659fd93ull;
      a ^= a >> 31, b ^= b >> 29, c ^= c >> 30, d ^= d >> 28;
    }
    h = a ^ (b << 7 | b >> 57) ^ (c << 19 | c >> 45) ^ (d << 41 | d >> 23);
  };
  // A wave that reads the clock waits for a time, wherever it keeps what it read: it never comes back to a state.
  h = (h ^ w.clock_read) * 0x9e3779b97f4a7c15ull;
  mix(w.sgpr, sizeof w.sgpr);
  mix(w.vgpr, size_t(w.program->entry.vgprs) * sizeof(Lanes));
  return h;
}

ThreadRun::ThreadRun(Machine& machine, ThreadContext& tc, std::vector<Cta*> ctas, const std::vector<RankLaunch>& launches)
    : machine_(machine), tc_(tc), ctas_(std::move(ctas)), launches_(launches), random_(machine.options_.seed * 0x9e3779b97f4a7c15ull ^ uint64_t(tc.id) << 32) {
  size_t total = 0;
  for (const RankLaunch& launch : launches) {
    cache_of_.emplace_back(launch.program, total);
    total += launch.program->ops.size();
  }
  caches_.assign(total, 0xffff);
}

// splitmix64
uint64_t ThreadRun::draw() {
  uint64_t z = random_ += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

// Short and long: a wave far ahead of the others shows as much as one far behind, and changing waves is slow.
uint64_t ThreadRun::draw_slice(uint64_t longest) {
  uint64_t drawn = draw();
  switch (drawn & 7) {
    case 0:
    case 1:
      return 1 + (drawn >> 8) % 32;
    case 2:
    case 3:
    case 4:
      return 1 + (drawn >> 8) % 512;
    default:
      return longest;
  }
}

void ThreadRun::run_wave(Wave& w, uint64_t slice) {
  uint64_t left = slice;
  for (;;) {
    if (w.poisoned && !any_poison(w)) w.poisoned = false;
    w.stop = Stop::none;
    uint64_t before = tc_.executed;
    bool count = w.cta->op_counts != nullptr;
    if (w.poisoned) count ? interpret<true, true>(w, left) : interpret<false, true>(w, left);
    else count ? interpret<true, false>(w, left) : interpret<false, false>(w, left);
    uint64_t used = tc_.executed - before;
    if (w.stop != Stop::switch_loop || used >= left) return;
    left -= used;
  }
}

void ThreadRun::release_barrier(Cta& cta) {
  if (cta.at_barrier < cta.live) return;
  meet_lds(cta);
  if (cta.live == 0) return;
  if (tc_.handoff) tc_.handoff->meet(cta);
  if (cta.op_counts)
    for (int i = 0; i < cta.waves; ++i) observe_wait(*cta.wave[i].flight, cta.handed);
  for (int i = 0; i < cta.waves; ++i)
    if (cta.wave[i].status == Status::barrier) cta.wave[i].status = Status::running;
  cta.at_barrier = 0;
}

// Runs the waves of a CTA in turn until none goes on; true if any got past a wait. `mixed`: in slices and an order drawn
// from the seed.
bool ThreadRun::visit(Cta& cta, bool mixed) {
  if (!cta.started) machine_.start(cta, tc_);
  tc_.buffer_cache = caches_.data() + cache_of_[size_t(cta.launch_index)].second;
  tc_.careful = ++cta.visits > kPatience;
  bool advanced = false;
  uint64_t before = tc_.changes.load(std::memory_order_relaxed);
  const uint64_t slice = cta.quiet ? kQuietSlice : kWaveSlice;
  int order[kMaxWaves];
  std::iota(order, order + cta.waves, 0);
  for (int round = 0; round < kCtaRounds; ++round) {
    bool again = false;
    bool sliced = false;  // a wave used up its slice
    for (int i = cta.waves; mixed && i > 1; --i) std::swap(order[i - 1], order[draw() % uint64_t(i)]);
    for (int i = 0; i < cta.waves; ++i) {
      Wave& w = cta.wave[order[i]];
      if (w.status != Status::running) continue;
      run_wave(w, mixed ? draw_slice(slice) : slice);
      w.yielded = w.stop == Stop::yield;
      switch (w.stop) {
        case Stop::fault:
          return true;
        case Stop::end:
          w.status = Status::ended;
          --cta.live;
          tc_.changed();
          release_barrier(cta);
          again = true;
          break;
        case Stop::barrier:
          w.status = Status::barrier;
          ++cta.at_barrier;
          again = true;
          release_barrier(cta);
          break;
        case Stop::yield:
          break;
        default:
          sliced = true;
      }
    }
    if (machine_.aborted()) return true;
    advanced = advanced || again || sliced;
    if (cta.live == 0) {
      cta.done = true;
      machine_.recycle(cta);
      return true;
    }
    if (!again && !(mixed && sliced && !cta.quiet)) break;
  }
  cta.quiet = tc_.changes.load(std::memory_order_relaxed) == before;
  return advanced;
}

// True when the waves of every CTA, taken together, come back to the same registers at the same places (Brent's cycle
// detection over the visits) with no memory changing in between: nothing can ever go on.
bool ThreadRun::all_cycle(uint64_t changes) {
  for (Cta* cta : ctas_) {
    if (cta->done || !cta->started) {
      if (!cta->done) return false;
      continue;
    }
    if (cta->cycle_changes == changes && cta->cycling) continue;
    uint64_t hash = 0;
    for (int i = 0; i < cta->waves; ++i)
      if (cta->wave[i].status != Status::ended) hash = (hash ^ state_hash(cta->wave[i])) * 0x9e3779b97f4a7c15ull + uint64_t(i);
    if (cta->cycle_changes != changes) {
      cta->cycle_changes = changes;
      cta->cycling = false;
      cta->cycle_hash = hash;
      cta->cycle_age = 0;
      cta->cycle_limit = 1;
      return false;
    }
    if (hash == cta->cycle_hash) {
      cta->cycling = true;
      continue;
    }
    if (++cta->cycle_age >= cta->cycle_limit) {
      cta->cycle_hash = hash;
      cta->cycle_age = 0;
      cta->cycle_limit *= 2;
    }
    return false;
  }
  return true;
}

void ThreadRun::run() {
  try {
    loop();
  } catch (...) {
    machine_.fail(std::current_exception());
  }
}

void ThreadRun::loop() {
  auto asked = std::chrono::steady_clock::now();
  uint64_t last = ~0ull;
  int quiet = 0;
  for (;;) {
    bool live = false, advanced = false;
    for (Cta* cta : ctas_) {
      if (cta->done) continue;
      live = true;
      if (cta->skip > 0 && quiet == 0) {
        --cta->skip;
        continue;
      }
      // Not where nothing changes: waves that are cut at random come back to a state by chance only.
      if (visit(*cta, machine_.options_.seed && quiet == 0)) {
        cta->idle = 0;
        advanced = true;
      } else {
        cta->skip = std::min<uint32_t>(++cta->idle / 2, 6);
      }
      if (machine_.aborted()) return;
    }
    if (tc_.id == 0 && machine_.options_.interrupted) {
      auto now = std::chrono::steady_clock::now();
      if (now - asked > std::chrono::milliseconds(200)) {
        asked = now;
        if (machine_.options_.interrupted()) return machine_.abort();
      }
    }
    uint64_t changes = machine_.total_changes();
    if (machine_.options_.limit && tc_.executed > machine_.options_.limit) {
      hang_ = "a host thread ran " + std::to_string(tc_.executed) + " wave-instructions, over the limit";
      machine_.abort();
      return;
    }
    if (!live) {
      // Ended: only the others can still change anything.
      machine_.stuck_[size_t(tc_.id)].store(~0ull - 1);
      return;
    }
    if (changes != last) {
      last = changes;
      quiet = 0;
      continue;
    }
    if (++quiet < kQuietRounds) {
      if (!advanced && machine_.threads_.size() > 1) std::this_thread::yield();
      continue;
    }
    if (all_cycle(changes)) {
      bool all = true;
      machine_.stuck_[size_t(tc_.id)].store(changes);
      for (auto& other : machine_.stuck_) {
        uint64_t seen = other.load();
        all = all && (seen == changes || seen == ~0ull - 1);
      }
      if (all && machine_.total_changes() == changes) {
        hang_ = "every live wave waits and nothing changes";
        machine_.abort();
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void ThreadRun::collect_waiting(std::vector<Waiting>& out) const {
  for (const Cta* cta : ctas_) {
    if (cta->done || !cta->started) continue;
    for (int i = 0; i < cta->waves; ++i) {
      const Wave& w = cta->wave[i];
      if (w.status == Status::ended) continue;
      Waiting waiting;
      waiting.rank = int(cta->rank);
      waiting.cta = int(cta->linear);
      waiting.wave = i;
      waiting.program = w.program;
      if (w.status == Status::barrier) {
        waiting.why = "wait at a barrier";
        waiting.op = uint32_t(w.pc - w.ops) - 1;
      } else {
        waiting.why = w.yielded ? "poll" : "spin";
        waiting.op = w.last_load ? w.last_load->index : uint32_t(w.pc - w.ops);
        waiting.address = w.last_address;
        waiting.value = w.last_value;
        int found = w.last_load ? machine_.map_.find(w.last_address) : -1;
        if (found >= 0) waiting.buffer = machine_.map_.at(found).name;
      }
      out.push_back(std::move(waiting));
    }
  }
}

}  // namespace monoc::sim
