// Matrix fused multiply-add without block scales: D = A B + C.
//
// Order of the sums (the hardware's is not documented): every element starts from C and takes its products in ascending k, one
// fused multiply-add each: acc = RN(acc + a * b), in f32 (f64 for the f64 forms; i32 wraps). Denormals are kept.
//
// Layouts (AMD matrix instruction calculator; CDNA3 / CDNA4 ISA documents, section MFMA): lane l holds row (A) or column (B)
// l % size of block l / size % blocks and the K elements from (l / (size * blocks)) * (elements a lane). Results: simd16.hpp,
// tile_row; f64: see there.
#include <type_traits>

#include "formats.hpp"
#include "simd16.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

// Element formats: `per` elements a dword, decoded to f32 or i32. `exact`: the product of two is exact in f32.
struct InF32 {
  using T = f32;
  static constexpr int per = 1;
  static constexpr bool exact = false;
  static T get(u32 w, int) { return bits<f32>(w); }
};
struct InBf16 {
  using T = f32;
  static constexpr int per = 2;
  static constexpr bool exact = false;
  static T get(u32 w, int j) { return bits<f32>(j ? w & 0xffff0000u : w << 16); }
};
struct InF16 {
  using T = f32;
  static constexpr int per = 2;
  static constexpr bool exact = true;
  static T get(u32 w, int j) { return half_to_f32(w >> (16 * j) & 0xffffu); }
};
template <class Format>
struct InByte {
  using T = f32;
  static constexpr int per = 4;
  static constexpr bool exact = true;
  static T get(u32 w, int j) { return Format::decode(w >> (8 * j) & 0xffu); }
};
struct InI8 {
  using T = i32;
  static constexpr int per = 4;
  static constexpr bool exact = true;
  static T get(u32 w, int j) { return static_cast<i32>(w << (24 - 8 * j)) >> 24; }
};

// Source lane of lane l: cbsz / abid broadcast a block of A to a group of blocks, blgp permutes the lanes of B.
template <int size>
int a_lane(int l, const AluMods& m) {
  if (m.cbsz == 0) return l;
  const int block = l / size, group = 1 << m.cbsz;
  return (block / group * group + m.abid % group) * size + l % size;
}
int b_lane(int l, u32 blgp) {
  switch (blgp) {
    case 1: return l % 32;
    case 2: return l % 32 + 32;
    case 3: return (l + 16) % 64;
    case 4: case 5: case 6: case 7: return l % 16 + 16 * static_cast<int>(blgp - 4);
    default: return l;
  }
}

// out[block][k][row] from the operand's registers.
template <class In, int size, int K, int blocks, class Lane>
void expand(typename In::T* out, const Lanes* in, bool straight, Lane lane_of) {
  constexpr int groups = 64 / (size * blocks);
  constexpr int each = K / groups;
  Lanes moved;
  for (int r = 0; r < each / In::per; ++r) {
    const u32* w = in[r].v;
    if (!straight) {
      for (int l = 0; l < 64; ++l) moved.v[l] = w[lane_of(l)];
      w = moved.v;
    }
    for (int first = 0; first < 64; first += size) {
      const int block = first / size % blocks, k = first / (size * blocks) * each + r * In::per;
      for (int j = 0; j < In::per; ++j) {
        typename In::T* row = out + (block * K + k + j) * size;
        for (int i = 0; i < size; ++i) row[i] = In::get(w[first + i], j);
      }
    }
  }
}

template <bool exact, int size, int K>
void multiply(const f32* a, const f32* b, int block, Lanes* d, const Lanes* c) {
  for (int row0 = 0; row0 < size; row0 += kRowTile) {
    for (int col = 0; col < size; col += 16) {
      V16 acc[kRowTile];
#pragma GCC unroll 16
      for (int t = 0; t < kRowTile; ++t) {
        const TileRow at = tile_row<size>(block, row0 + t);
        acc[t] = V16::load(c[at.reg].v + at.lane + col);
      }
      for (int k = 0; k < K; ++k) {
        const V16 y = V16::load(b + k * size + col);
#pragma GCC unroll 16
        for (int t = 0; t < kRowTile; ++t) {
          const V16 x = V16::all(a[k * size + row0 + t]);
          acc[t] = exact ? fma16_exact(x, y, acc[t]) : fma16(x, y, acc[t]);
        }
      }
#pragma GCC unroll 16
      for (int t = 0; t < kRowTile; ++t) {
        const TileRow at = tile_row<size>(block, row0 + t);
        canon16(acc[t]).store(d[at.reg].v + at.lane + col);
      }
    }
  }
}

// Small blocks and integers.
template <int size, int K, class T>
void multiply_plain(const T* a, const T* b, int block, Lanes* d, const Lanes* c) {
  for (int row = 0; row < size; ++row) {
    const TileRow at = tile_row<size>(block, row);
    T acc[size];
    for (int col = 0; col < size; ++col) acc[col] = bits<T>(c[at.reg].v[at.lane + col]);
    for (int k = 0; k < K; ++k) {
      const T x = a[k * size + row];
      const T* y = b + k * size;
      for (int col = 0; col < size; ++col) {
        if constexpr (std::is_same_v<T, f32>) {
          acc[col] = __builtin_fmaf(x, y[col], acc[col]);
        } else {
          acc[col] = static_cast<T>(static_cast<u32>(acc[col]) + static_cast<u32>(x) * static_cast<u32>(y[col]));
        }
      }
    }
    for (int col = 0; col < size; ++col) {
      if constexpr (std::is_same_v<T, f32>) acc[col] = canon(acc[col]);
      d[at.reg].v[at.lane + col] = bits<u32>(acc[col]);
    }
  }
}

template <class InA, class InB, int size, int K, int blocks>
void mfma(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  using T = typename InA::T;
  alignas(64) T a[blocks * K * size];
  alignas(64) T b[blocks * K * size];
  const AluMods& m = *ctx.mods;
  expand<InA, size, K, blocks>(a, s[0], m.cbsz == 0, [&](int l) { return a_lane<size>(l, m); });
  expand<InB, size, K, blocks>(b, s[1], m.blgp == 0, [&](int l) { return b_lane(l, m.blgp); });
  for (int block = 0; block < blocks; ++block) {
    const T* x = a + block * K * size;
    const T* y = b + block * K * size;
    if constexpr (std::is_same_v<T, f32> && size >= 16) {
      multiply<InA::exact && InB::exact, size, K>(x, y, block, d, s[2]);
    } else {
      multiply_plain<size, K>(x, y, block, d, s[2]);
    }
  }
}

// Lane l holds row / column l % size of block l / size % blocks and k = l / (size * blocks) of A and B. Results of 16x16x4: pair i of
// lane l is row 4 * i + l / 16, column l % 16; of 4x4x4: row l / 16, column l % 4 of block l / 4 % 4. blgp bits negate A, B, C.
template <int size, int blocks>
void mfma_f64(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Src<f64> a(s[0]), b(s[1]);
  const u32 neg = ctx.mods->blgp;
  f64 x[64], y[64];
  for (int l = 0; l < 64; ++l) {
    x[l] = neg & 1 ? -a[l] : a[l];
    y[l] = neg & 2 ? -b[l] : b[l];
  }
  for (int pair = 0; pair < size / 4; ++pair) {
    const Src<f64> c(s[2] + 2 * pair);
    const Dst<f64> out(d + 2 * pair);
    for (int l = 0; l < 64; ++l) {
      const int block = l / size % blocks, row = 4 * pair + l / (size * blocks), col = l % size;
      f64 acc = neg & 4 ? -c[l] : c[l];
      for (int k = 0; k < 4; ++k) {
        const int first = k * size * blocks + block * size;
        acc = __builtin_fma(x[first + row], y[first + col], acc);
      }
      out.set(l, canon(acc));
    }
  }
}

constexpr AluOp row(const char* name, AluFn fn, int c, int a, int b, u32 macs) {
  AluOp r{name, fn, Kind::mat, 3, {Kind::mat, Kind::mat, Kind::mat}, static_cast<u8>(c),
          {static_cast<u8>(a), static_cast<u8>(b), static_cast<u8>(c)}, kMfma, macs};
  return r;
}

template <class InA, class InB, int size, int K, int blocks>
constexpr AluOp mfma_row(const char* name) {
  constexpr int each = K * size * blocks / 64;
  return row(name, mfma<InA, InB, size, K, blocks>, size * size * blocks / 64, each / InA::per, each / InB::per,
             size * size * K * blocks);
}
template <class In, int size, int K, int blocks = 1>
constexpr AluOp same(const char* name) {
  return mfma_row<In, In, size, K, blocks>(name);
}

using P8 = InByte<Fp8>;
using B8 = InByte<Bf8>;

constexpr AluOp kTable[] = {
    same<InF32, 32, 1, 2>("v_mfma_f32_32x32x1_2b_f32"),
    same<InF32, 16, 1, 4>("v_mfma_f32_16x16x1_4b_f32"),
    same<InF32, 4, 1, 16>("v_mfma_f32_4x4x1_16b_f32"),
    same<InF32, 32, 2>("v_mfma_f32_32x32x2_f32"),
    same<InF32, 16, 4>("v_mfma_f32_16x16x4_f32"),
    same<InF16, 32, 4, 2>("v_mfma_f32_32x32x4_2b_f16"),
    same<InF16, 16, 4, 4>("v_mfma_f32_16x16x4_4b_f16"),
    same<InF16, 4, 4, 16>("v_mfma_f32_4x4x4_16b_f16"),
    same<InF16, 32, 8>("v_mfma_f32_32x32x8_f16"),
    same<InF16, 16, 16>("v_mfma_f32_16x16x16_f16"),
    same<InF16, 32, 16>("v_mfma_f32_32x32x16_f16"),
    same<InF16, 16, 32>("v_mfma_f32_16x16x32_f16"),
    same<InBf16, 32, 4, 2>("v_mfma_f32_32x32x4_2b_bf16"),
    same<InBf16, 16, 4, 4>("v_mfma_f32_16x16x4_4b_bf16"),
    same<InBf16, 4, 4, 16>("v_mfma_f32_4x4x4_16b_bf16"),
    same<InBf16, 32, 8>("v_mfma_f32_32x32x8_bf16"),
    same<InBf16, 16, 16>("v_mfma_f32_16x16x16_bf16"),
    same<InBf16, 32, 16>("v_mfma_f32_32x32x16_bf16"),
    same<InBf16, 16, 32>("v_mfma_f32_16x16x32_bf16"),
    same<InI8, 32, 4, 2>("v_mfma_i32_32x32x4_2b_i8"),
    same<InI8, 16, 4, 4>("v_mfma_i32_16x16x4_4b_i8"),
    same<InI8, 4, 4, 16>("v_mfma_i32_4x4x4_16b_i8"),
    same<InI8, 32, 16>("v_mfma_i32_32x32x16_i8"),
    same<InI8, 16, 32>("v_mfma_i32_16x16x32_i8"),
    same<InI8, 32, 32>("v_mfma_i32_32x32x32_i8"),
    same<InI8, 16, 64>("v_mfma_i32_16x16x64_i8"),
    mfma_row<P8, P8, 16, 32, 1>("v_mfma_f32_16x16x32_fp8_fp8"),
    mfma_row<P8, B8, 16, 32, 1>("v_mfma_f32_16x16x32_fp8_bf8"),
    mfma_row<B8, P8, 16, 32, 1>("v_mfma_f32_16x16x32_bf8_fp8"),
    mfma_row<B8, B8, 16, 32, 1>("v_mfma_f32_16x16x32_bf8_bf8"),
    mfma_row<P8, P8, 32, 16, 1>("v_mfma_f32_32x32x16_fp8_fp8"),
    mfma_row<P8, B8, 32, 16, 1>("v_mfma_f32_32x32x16_fp8_bf8"),
    mfma_row<B8, P8, 32, 16, 1>("v_mfma_f32_32x32x16_bf8_fp8"),
    mfma_row<B8, B8, 32, 16, 1>("v_mfma_f32_32x32x16_bf8_bf8"),
    row("v_mfma_f64_16x16x4_f64", mfma_f64<16, 1>, 8, 2, 2, 1024),
    row("v_mfma_f64_4x4x4_4b_f64", mfma_f64<4, 4>, 2, 2, 2, 256),
};

}  // namespace

std::span<const AluOp> table_mfma() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
