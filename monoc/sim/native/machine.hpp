// Runs launches: CTAs of all ranks resident, waves in turn, host threads in parallel.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "handoff.hpp"
#include "host_space.hpp"
#include "lds_race.hpp"
#include "program.hpp"
#include "state.hpp"

namespace monoc::sim {

struct Finding {
  std::string kind, message;
  const Program* program = nullptr;
  uint32_t op = 0;
  int rank = -1, cta = -1, wave = -1, lane = -1;
  uint64_t address = 0;
  std::string buffer;
};

struct Waiting {
  int rank = 0, cta = 0, wave = 0;
  std::string why;
  const Program* program = nullptr;
  uint32_t op = 0;
  uint64_t address = 0, value = 0;
  std::string buffer;
};

struct RankLaunch {
  int rank = 0;
  const Program* program = nullptr;
  std::vector<uint8_t> kernarg;
  std::array<uint32_t, 3> grid{1, 1, 1}, block{64, 1, 1};
  uint32_t dynamic_lds = 0;
  uint64_t kernarg_address = 0, dispatch_address = 0;
  std::vector<uint8_t> storage;  // kernarg and dispatch packet
  uint32_t ctas() const { return grid[0] * grid[1] * grid[2]; }
  uint32_t threads() const { return block[0] * block[1] * block[2]; }
  uint32_t waves() const { return (threads() + 63) / 64; }
};

struct Options {
  uint64_t seed = 0, limit = 0;  // limit: wave-instructions of a host thread, 0 for none
  int threads = 1;
  uint32_t lds_margin = 0;  // bytes behind a CTA's LDS that may be accessed
  bool lds_poison = true, vgpr_poison = false, observe = false, lds_races = false;
  std::function<bool()> interrupted;  // asked now and then by the calling thread; true ends the launch
};

// Bytes moved, by buffer, cache policy (SC0 | NT << 1 | SC1 << 2) and direction; and by op.
struct Observation {
  std::vector<std::array<std::array<uint64_t, 2>, 8>> buffers;
  std::vector<std::vector<uint64_t>> op_bytes;  // per launch of a rank
};

struct CtaCounts {
  int rank = 0, cta = 0;
  std::vector<uint32_t> ops;
  uint64_t bytes[2] = {0, 0};
  uint64_t busiest = 0, in_flight = 0;  // see Flight
};

struct Result {
  std::vector<Finding> findings;
  std::vector<Waiting> waiting;
  std::string hang;  // reason, empty when there is none
  std::vector<uint64_t> executed;  // per host thread
  std::vector<CtaCounts> counts;   // observers
  std::vector<Observation> observations;  // per host thread
  std::vector<std::string> buffer_names;  // what Observation::buffers counts, kernel arguments included
};

class Machine {
 public:
  explicit Machine(int ranks) : ranks_(ranks) {}
  MemoryMap& map() { return map_; }
  int ranks() const { return ranks_; }
  Result launch(std::vector<RankLaunch>& launches, const Options& options);
  void add_finding(Finding finding);
  // The hand-off regions; null turns their checks off.
  void set_handoff(std::unique_ptr<Handoff> handoff) { handoff_ = std::move(handoff); }
  Handoff* handoff() const { return handoff_.get(); }
  void fail(std::exception_ptr error);
  bool aborted() const { return abort_.load(std::memory_order_relaxed); }
  void abort() { abort_.store(true); }

 private:
  friend class ThreadRun;
  uint64_t total_changes() const;
  void start(Cta& cta, ThreadContext& tc);
  void prepare_marks();
  void recycle(const Cta& cta);

  MemoryMap map_;
  std::unique_ptr<Handoff> handoff_;
  int ranks_;
  Options options_;
  std::atomic<bool> abort_{false}, running_{false};
  std::mutex mutex_;
  std::vector<Finding> findings_;
  std::exception_ptr failure_;
  std::vector<std::unique_ptr<ThreadContext>> threads_;
  std::vector<std::atomic<uint64_t>> stuck_;  // total changes a thread saw when all its waves turned out to cycle
  std::vector<Cta> ctas_;
  std::vector<Wave> waves_;
  HostSpace arena_;
  std::vector<size_t> offsets_;
  std::vector<LdsMarks> marks_;  // by wave; empty: LDS races are not looked for
  HostSpace mark_bits_;          // all clear between launches
};

void observe_bytes(Wave& w, const Buffer& buffer, const Op& op, bool store, uint64_t bytes);
void handoff_access(Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, bool store);
void handoff_delay(const Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, Lanes* words);
uint32_t scratch_bytes(const Wave& w);
uint8_t* new_scratch_poison(Wave& w);

// Propagates poison through one instruction about to run, and reports what must not depend on it.
void poison_step(Wave& w, const Op& op);
bool any_poison(const Wave& w);
uint64_t state_hash(const Wave& w);

}  // namespace monoc::sim
