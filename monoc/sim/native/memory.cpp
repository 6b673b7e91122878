#include "memory.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace monoc::sim {

int MemoryMap::find(uint64_t address) const {
  auto position = std::upper_bound(bases_.begin(), bases_.end(), address) - bases_.begin();
  if (position == 0 || address >= ends_[position - 1]) return -1;
  return static_cast<int>(position) - 1;
}

Buffer* MemoryMap::add(uint64_t base, uint64_t size, std::string name, int rank, bool written, bool output,
                       bool read_only) {
  size_t position = size_t(std::upper_bound(bases_.begin(), bases_.end(), base) - bases_.begin());
  if (position > 0 && ends_[position - 1] > base)
    throw std::invalid_argument("buffer " + name + " overlaps " + buffers_[position - 1]->name);
  if (position < buffers_.size() && bases_[position] < base + size)
    throw std::invalid_argument("buffer " + name + " overlaps " + buffers_[position]->name);
  if (buffers_.size() >= 0xfffe) throw std::invalid_argument("more than 65,534 registered buffers");
  auto buffer = std::make_unique<Buffer>();
  buffer->base = base;
  buffer->size = size;
  buffer->name = std::move(name);
  buffer->rank = rank;
  buffer->output = output;
  buffer->read_only = read_only;
  buffer->id = next_id_++;
  if (!written) {
    // The shadow counts from the dword the buffer starts in.
    size_t dwords = (size + 3) / 4 + 2;
    buffer->written = new uint8_t[dwords]();
  }
  Buffer* result = buffer.get();
  buffers_.insert(buffers_.begin() + long(position), std::move(buffer));
  bases_.insert(bases_.begin() + long(position), base);
  ends_.insert(ends_.begin() + long(position), base + size);
  return result;
}

bool MemoryMap::remove(uint64_t base) {
  auto position = std::lower_bound(bases_.begin(), bases_.end(), base) - bases_.begin();
  if (position == long(bases_.size()) || bases_[position] != base) return false;
  buffers_.erase(buffers_.begin() + position);
  bases_.erase(bases_.begin() + position);
  ends_.erase(ends_.begin() + position);
  return true;
}

void MemoryMap::mark_written(uint64_t address, uint64_t size) {
  int found = find(address);
  if (found < 0 || address + size > at(found).end()) throw std::invalid_argument("no registered buffer holds these bytes");
  Buffer& buffer = at(found);
  uint8_t* shadow = buffer.written.load();
  if (!shadow) return;
  uint64_t start = address - (buffer.base & ~3ull), end = start + size;
  for (; start < end && (start & 3); ++start) shadow[start >> 2] |= uint8_t(1 << (start & 3));
  if (start < end) std::memset(shadow + (start >> 2), 15, (end - start) >> 2);
  for (uint64_t byte = start + ((end - start) & ~3ull); start < end && byte < end; ++byte)
    shadow[byte >> 2] |= uint8_t(1 << (byte & 3));
}

uint8_t* MemoryMap::ensure_written(Buffer& buffer) const {
  uint8_t* shadow = buffer.written.load(std::memory_order_acquire);
  if (shadow) return shadow;
  std::lock_guard lock(mutex_);
  shadow = buffer.written.load(std::memory_order_acquire);
  if (shadow) return shadow;
  size_t dwords = (buffer.size + 3) / 4 + 2;
  shadow = new uint8_t[dwords];
  std::memset(shadow, 0x0f, dwords);
  buffer.written.store(shadow, std::memory_order_release);
  return shadow;
}

}  // namespace monoc::sim
