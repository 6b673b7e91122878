#include "machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "thread_run.hpp"

namespace monoc::sim {

void Machine::add_finding(Finding finding) {
  std::lock_guard lock(mutex_);
  if (findings_.size() < 64) findings_.push_back(std::move(finding));
  abort_.store(true);
}

void Machine::fail(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
  abort_.store(true);
}

uint64_t Machine::total_changes() const {
  uint64_t sum = 0;
  for (auto& thread : threads_) sum += thread->changes.load(std::memory_order_acquire);
  return sum;
}

namespace {

size_t aligned(size_t bytes) { return (bytes + 255) & ~size_t(255); }

// Bytes of one CTA's registers, LDS, written bits and scratch.
struct Layout {
  size_t vgprs, lds, written, scratch, total;
  Layout(const RankLaunch& launch, const Options& options) {
    const Entry& entry = launch.program->entry;
    size_t lds_bytes = entry.lds_bytes + launch.dynamic_lds + options.lds_margin;
    vgprs = size_t(launch.waves()) * entry.vgprs * sizeof(Lanes);
    lds = aligned(lds_bytes + 16);
    written = options.lds_poison ? aligned(lds_bytes / 4 + 16) : 0;
    scratch = aligned(size_t(launch.waves()) * 64 * entry.scratch_bytes);
    total = vgprs + lds + written + scratch;
  }
};

void check(const RankLaunch& launch, int ranks) {
  if (launch.rank < 0 || launch.rank >= ranks) throw std::invalid_argument("rank " + std::to_string(launch.rank) + " does not exist");
  if (launch.threads() == 0 || launch.threads() > 1024) throw std::invalid_argument("a CTA has 1 to 1024 threads");
  uint64_t ctas = 1;
  for (uint32_t extent : launch.grid) {
    if (extent == 0) throw std::invalid_argument("a grid has at least one CTA");
    ctas = std::min<uint64_t>(ctas * extent, 1ull << 32);
  }
  if (ctas > 1u << 22) throw std::invalid_argument("more than 4,194,304 CTAs");
  if (launch.program->entry.lds_bytes + launch.dynamic_lds > 160 * 1024) throw std::invalid_argument("a CTA has at most 160 KB of LDS");
  if (launch.kernarg.size() < launch.program->entry.kernarg_bytes) throw std::invalid_argument("kernel arguments are too short");
}

// A launch in progress: one at a time, and its kernel arguments are device memory only while it lasts.
class Running {
 public:
  Running(std::atomic<bool>& flag, MemoryMap& map, const std::vector<RankLaunch>& launches) : flag_(flag), map_(map), launches_(launches) {
    if (flag.exchange(true)) throw std::invalid_argument("another launch of this simulator is running");
  }
  ~Running() {
    for (const RankLaunch& launch : launches_)
      if (launch.dispatch_address) map_.remove(launch.dispatch_address);
    flag_ = false;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<bool>& flag_;
  MemoryMap& map_;
  const std::vector<RankLaunch>& launches_;
};

// The AQL packet a kernel may read its sizes from (HSA runtime specification, kernel dispatch packet).
void dispatch_packet(const RankLaunch& launch, uint8_t* packet) {
  auto put16 = [&](int at, uint32_t v) { std::memcpy(packet + at, &v, 2); };
  auto put32 = [&](int at, uint32_t v) { std::memcpy(packet + at, &v, 4); };
  std::memset(packet, 0, 64);
  put16(0, 2);
  put16(2, 3);
  for (int i = 0; i < 3; ++i) put16(4 + 2 * i, launch.block[i]), put32(12 + 4 * i, launch.grid[i] * launch.block[i]);
  put32(24, launch.program->entry.scratch_bytes);
  put32(28, launch.program->entry.lds_bytes + launch.dynamic_lds);
  std::memcpy(packet + 40, &launch.kernarg_address, 8);
}

void entry_state(Wave& w, const Cta& cta, const RankLaunch& launch) {
  const Entry& e = launch.program->entry;
  unsigned s = 0;
  auto put64 = [&](uint64_t value) {
    w.write64(s, value);
    s += 2;
  };
  if (e.private_buffer) s += 4;
  if (e.dispatch_ptr) put64(launch.dispatch_address);
  if (e.queue_ptr) put64(0);
  if (e.kernarg_ptr) put64(launch.kernarg_address);
  if (e.dispatch_id) put64(0);
  if (e.flat_scratch_init) put64(0);
  if (e.private_size) w.sgpr[s++] = e.scratch_bytes;
  for (uint32_t i = 0; i < e.preload_length; ++i)
    std::memcpy(w.sgpr + s++, launch.kernarg.data() + 4 * (e.preload_offset + i), 4);
  s = std::max(s, e.user_sgprs);
  if (e.group_x) w.sgpr[s++] = cta.x;
  if (e.group_y) w.sgpr[s++] = cta.y;
  if (e.group_z) w.sgpr[s++] = cta.z;
  if (e.group_info) w.sgpr[s++] = 0;
  uint64_t exec = 0;
  for (int l = 0; l < 64; ++l) {
    uint32_t t = uint32_t(w.id) * 64 + uint32_t(l);
    if (t >= launch.threads()) continue;
    exec |= 1ull << l;
    uint32_t x = t % launch.block[0], y = t / launch.block[0] % launch.block[1], z = t / (launch.block[0] * launch.block[1]);
    if (e.vgprs) w.vgpr[0].v[l] = x | y << 10 | z << 20;  // packed work-item id (gfx90a and later)
  }
  w.exec() = exec;
  w.mode = e.mode;
}

}  // namespace

// First visit of a CTA: clears its state, sets up the kernel's entry state.
void Machine::start(Cta& cta, ThreadContext& tc) {
  const RankLaunch& launch = *cta.launch;
  const Program& program = *launch.program;
  Layout layout(launch, options_);
  uint8_t* base = arena_.data() + offsets_[size_t(&cta - ctas_.data())];
  std::memset(base, 0, layout.total);
  cta.lds = base + layout.vgprs;
  cta.lds_written = layout.written ? cta.lds + layout.lds : nullptr;
  for (int i = 0; i < cta.waves; ++i) {
    Wave& w = cta.wave[i];
    w.vgpr = reinterpret_cast<Lanes*>(base) + size_t(i) * program.entry.vgprs;
    w.scratch_mem = cta.lds + layout.lds + layout.written + size_t(i) * 64 * program.entry.scratch_bytes;
    w.tc = &tc;
    w.cta = &cta;
    w.program = &program;
    w.ops = program.ops.data();
    w.consts = program.consts.data();
    w.pc = w.ops;
    w.id = i;
    entry_state(w, cta, launch);
    if (options_.vgpr_poison) {
      Poison& poison = ensure_poison(w);
      for (uint32_t r = 1; r < program.entry.vgprs; ++r) poison.v[r] = ~0ull;
      w.stop = Stop::none;
    }
  }
  cta.started = true;
}

// Gives a finished CTA's memory back where all CTAs together would not fit the host.
void Machine::recycle(const Cta& cta) {
  constexpr size_t kPlenty = size_t(4) << 30;
  if (arena_.size() < kPlenty) return;
  size_t index = size_t(&cta - ctas_.data());
  arena_.drop(offsets_[index], index + 1 < offsets_.size() ? offsets_[index + 1] : arena_.size());
}

// Room for what each wave touches in LDS. A wave that is alone in its CTA races with nobody.
void Machine::prepare_marks() {
  marks_.clear();
  if (!options_.lds_races) return;
  auto bytes = [](const Cta& cta) { return cta.waves > 1 && cta.lds_bytes ? (size_t(cta.lds_bytes) / 64 + 2) * 8 : 0; };
  size_t total = 0;
  for (const Cta& cta : ctas_) total += bytes(cta) * size_t(cta.waves) * LdsMarks::kinds;
  if (total == 0) return;
  mark_bits_.reserve(total, HostSpace::Pages::small);
  marks_.resize(waves_.size());
  uint8_t* next = mark_bits_.data();
  for (const Cta& cta : ctas_)
    for (int i = 0; i < cta.waves && bytes(cta); ++i) {
      Wave& w = cta.wave[i];
      w.marks = &marks_[size_t(&w - waves_.data())];
      for (uint8_t*& bits : w.marks->bits) bits = next, next += bytes(cta);
    }
}

Result Machine::launch(std::vector<RankLaunch>& launches, const Options& options) {
  Running running(running_, map_, launches);
  if (handoff_) handoff_->begin_launch();
  options_ = options;
  findings_.clear();
  failure_ = nullptr;
  abort_ = false;
  size_t total = 0, wave_count = 0, cta_count = 0;
  for (RankLaunch& launch : launches) {
    check(launch, ranks_);
    cta_count += launch.ctas();
    wave_count += size_t(launch.ctas()) * launch.waves();
  }
  uint64_t state = uint64_t(wave_count) * sizeof(Wave) + uint64_t(cta_count) * sizeof(Cta);
  uint64_t memory = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGE_SIZE));
  if (state > memory / 2)
    throw std::invalid_argument("the launch's " + std::to_string(wave_count) + " waves need " + std::to_string(state >> 30) +
                                " GiB of host memory for their scalar state alone: launch fewer CTAs");
  ctas_.assign(cta_count, Cta{});
  waves_.clear();
  waves_.resize(wave_count);
  offsets_.assign(cta_count, 0);
  size_t c = 0, wv = 0;
  for (RankLaunch& launch : launches) {
    launch.storage.assign(launch.kernarg.size() + 64 + 64, 0);
    uint64_t start = (reinterpret_cast<uint64_t>(launch.storage.data()) + 63) & ~63ull;
    launch.dispatch_address = start;
    launch.kernarg_address = start + 64;
    std::memcpy(reinterpret_cast<void*>(launch.kernarg_address), launch.kernarg.data(), launch.kernarg.size());
    dispatch_packet(launch, reinterpret_cast<uint8_t*>(start));
    map_.add(start, 64 + launch.kernarg.size(), "kernel arguments of rank " + std::to_string(launch.rank), launch.rank, true, false, true);
    Layout layout(launch, options);
    for (uint32_t i = 0; i < launch.ctas(); ++i) {
      Cta& cta = ctas_[c];
      cta.rank = uint32_t(launch.rank);
      cta.linear = i;
      cta.x = i % launch.grid[0];
      cta.y = i / launch.grid[0] % launch.grid[1];
      cta.z = i / (launch.grid[0] * launch.grid[1]);
      cta.waves = cta.live = int(launch.waves());
      cta.lds_bytes = launch.program->entry.lds_bytes + launch.dynamic_lds + options.lds_margin;
      cta.wave = waves_.data() + wv;
      cta.launch = &launch;
      cta.launch_index = int(&launch - launches.data());
      wv += launch.waves();
      offsets_[c++] = total;
      total += aligned(layout.total);
    }
  }
  arena_.reserve(std::max<size_t>(total, 1 << 20), HostSpace::Pages::huge);
  prepare_marks();

  int threads = std::max(1, std::min<int>(options.threads, int(std::max<size_t>(cta_count, 1))));
  threads_.clear();
  stuck_ = std::vector<std::atomic<uint64_t>>(size_t(threads));
  Result result;
  result.observations.resize(options.observe ? size_t(threads) : 0);
  std::vector<std::vector<uint32_t>> op_counts(options.observe ? cta_count : 0);
  std::vector<std::array<uint64_t, 2>> cta_bytes(options.observe ? cta_count : 0);
  std::vector<Flight> flights(options.observe ? wave_count : 0);
  for (size_t i = 0; i < op_counts.size(); ++i) {
    op_counts[i].assign(ctas_[i].launch->program->ops.size(), 0);
    cta_bytes[i] = {0, 0};
    ctas_[i].op_counts = op_counts[i].data();
    ctas_[i].bytes = cta_bytes[i].data();
    for (int k = 0; k < ctas_[i].waves; ++k) ctas_[i].wave[k].flight = &flights[size_t(ctas_[i].wave + k - waves_.data())];
  }
  // CTAs go to the threads in turn; each thread visits its own in an order the seed decides (0: as numbered).
  std::vector<std::vector<Cta*>> mine(static_cast<size_t>(threads));
  for (size_t i = 0; i < cta_count; ++i) mine[i % size_t(threads)].push_back(&ctas_[i]);
  std::vector<std::unique_ptr<ThreadRun>> runs;
  for (int t = 0; t < threads; ++t) {
    stuck_[size_t(t)] = ~0ull;
    if (options.seed) {
      std::mt19937_64 random(options.seed * 0x9e3779b97f4a7c15ull + uint64_t(t));
      for (size_t i = mine[size_t(t)].size(); i > 1; --i) std::swap(mine[size_t(t)][i - 1], mine[size_t(t)][random() % i]);
    }
    auto tc = std::make_unique<ThreadContext>();
    tc->machine = this;
    tc->map = &map_;
    tc->id = t;
    tc->handoff = handoff_.get();
    if (options.observe) {
      Observation& o = result.observations[size_t(t)];
      o.buffers.assign(size_t(map_.size()), {});
      o.op_bytes.resize(launches.size());
      for (size_t i = 0; i < launches.size(); ++i) o.op_bytes[i].assign(launches[i].program->ops.size(), 0);
      tc->observe = &o;
    }
    threads_.push_back(std::move(tc));
    runs.push_back(std::make_unique<ThreadRun>(*this, *threads_.back(), mine[size_t(t)], launches));
  }
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back([&, t] { runs[size_t(t)]->run(); });
  runs[0]->run();
  for (std::thread& worker : workers) worker.join();

  for (auto& run : runs) {
    result.executed.push_back(run->executed());
    if (!run->hang().empty()) result.hang = run->hang();
  }
  if (!result.hang.empty() && findings_.empty())
    for (auto& run : runs) run->collect_waiting(result.waiting);
  for (size_t i = 0; i < op_counts.size(); ++i) {
    CtaCounts counts;
    counts.rank = int(ctas_[i].rank);
    counts.cta = int(ctas_[i].linear);
    counts.ops = std::move(op_counts[i]);
    counts.bytes[0] = cta_bytes[i][0];
    counts.bytes[1] = cta_bytes[i][1];
    for (int k = 0; k < ctas_[i].waves; ++k) {
      const Flight& flight = *ctas_[i].wave[k].flight;
      counts.busiest = std::max(counts.busiest, flight.work);
      counts.in_flight += std::max(flight.peak, flight.open ? flight.bytes : 0);
    }
    result.counts.push_back(std::move(counts));
  }
  if (abort_ && !marks_.empty()) mark_bits_.drop(0, mark_bits_.size());
  for (Wave& w : waves_) {
    delete w.poison;
    delete[] w.scratch_poison;
  }
  if (options.observe)
    for (int i = 0; i < map_.size(); ++i) result.buffer_names.push_back(map_.at(i).name);
  if (failure_) std::rethrow_exception(failure_);
  result.findings = findings_;
  return result;
}

}  // namespace monoc::sim
