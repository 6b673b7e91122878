// Registered device memory: which host ranges exist, and which of their bytes were written.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace monoc::sim {

// What observers take a buffer for.
inline constexpr uint8_t kRoleNone = 0, kRoleWeight = 1, kRoleHandoff = 2;

// Written bits: one byte for each dword, bits 0..3 for its bytes, so that a dword store is one plain byte store and
// only sub-dword stores need an atomic or.
struct Buffer {
  uint64_t base = 0, size = 0;
  std::string name;
  int rank = 0;  // -1: every rank may use it
  bool output = false, read_only = false;
  std::atomic<uint8_t*> written{nullptr};  // null: all written
  uint32_t id = 0;
  uint8_t role = kRoleNone;  // observers: see Flight

  [[gnu::always_inline]] uint64_t end() const { return base + size; }
  ~Buffer() { delete[] written.load(); }
};

// The buffers of a machine sorted by address; they do not overlap. Not changed while a launch runs, apart from written bits.
class MemoryMap {
 public:
  // Index in order of address of the buffer holding `address`, or -1.
  int find(uint64_t address) const;
  [[gnu::always_inline]] Buffer& at(int index) const { return *buffers_[index]; }
  [[gnu::always_inline]] int size() const { return static_cast<int>(buffers_.size()); }

  Buffer* add(uint64_t base, uint64_t size, std::string name, int rank, bool written, bool output, bool read_only);
  bool remove(uint64_t base);
  void mark_written(uint64_t address, uint64_t size);
  // Shadow of a buffer, created full when it has none (a poisoned value is stored to written memory).
  uint8_t* ensure_written(Buffer& buffer) const;

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<uint64_t> bases_, ends_;
  mutable std::mutex mutex_;
  uint32_t next_id_ = 0;
};

}  // namespace monoc::sim
