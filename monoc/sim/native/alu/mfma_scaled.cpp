// The f8f6f4 MFMAs of gfx950, with and without E8M0 block scales: D = (A scaleA) (B scaleB) + C, blocks of 32 along K.
//
// Order of the sums (the hardware's is not documented): the 32 products of a block are added in f32 in ascending k, from zero, each
// product exact; a block's sum times 2^(sa + sb - 254) is exact in f64; C (as f64) plus the scaled block sums in ascending k
// is accumulated in f64 and rounded to f32 once at the end. A scale byte of 255 is NaN.
//
// Layouts (CDNA4 ISA document): lane l holds row / column l % size, g = l / size. fp8 and bf8: 16 elements from k = 16 g and 16
// from K / 2 + 16 g; fp6, bf6 and fp4: 32 elements from 32 g. The scale of K block b and row r is in lane r + size * b; op_sel
// (low bit) and op_sel_hi (high bit) pick the byte of the scale register.
#include "byte_table.hpp"
#include "simd16.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

constexpr int kBlock = 32;

template <class Format, int width, int size, int K>
void expand(f32* out, const Lanes* in) {
  constexpr int groups = 64 / size;
  if constexpr (width == 6) {
    for (int l = 0; l < 64; ++l) {
      u32 words[7] = {};
      for (int q = 0; q < 6; ++q) words[q] = in[q].v[l];
      for (int j = 0; j < 32; ++j) {
        const u64 window = u64{words[6 * j / 32 + 1]} << 32 | words[6 * j / 32];
        out[(l / size * 32 + j) * size + l % size] = Format::decode(static_cast<u32>(window >> (6 * j % 32)) & 0x3fu);
      }
    }
    return;
  }
  constexpr int per = 32 / width;
  for (int r = 0; r < width; ++r) {
    for (int g = 0; g < groups; ++g) {
      const u32* w = in[r].v + g * size;
      const int e = r * per;
      const int k = width == 4 ? 32 * g + e : e < 16 ? 16 * g + e : K / 2 + 16 * g + e - 16;
#if defined(MONOC_ALU_BYTE_TABLE)
      for (int i = 0; i < size; i += kWords) {
        const Words words = load_words(w + i);
        f32* row = out + k * size + i;
        if constexpr (width == 8) {
          const Words even = bf16_of_bytes<Format>(words), odd = bf16_of_bytes<Format>(odd_bytes(words));
          store_words(row, f32_of_low(even));
          store_words(row + size, f32_of_low(odd));
          store_words(row + 2 * size, f32_of_high(even));
          store_words(row + 3 * size, f32_of_high(odd));
        } else {
#pragma GCC unroll 8
          for (int j = 0; j < 8; ++j) store_words(row + j * size, f32_of_nibble(words, j));
        }
      }
      continue;
#endif
#pragma GCC unroll 8
      for (int j = 0; j < per; ++j) {
        f32* row = out + (k + j) * size;
        for (int i = 0; i < size; ++i) row[i] = Format::decode(w[i] >> (width * j) & ((1u << width) - 1u));
      }
    }
  }
}

template <int size, int K>
void expand_as(u32 format, f32* out, const Lanes* in) {
  switch (format) {
    case 0: return expand<Fp8, 8, size, K>(out, in);
    case 1: return expand<Bf8, 8, size, K>(out, in);
    case 2: return expand<Fp6, 6, size, K>(out, in);
    case 3: return expand<Bf6, 6, size, K>(out, in);
    default: return expand<Fp4, 4, size, K>(out, in);
  }
}

// out[block * size + row] = the scale as f64.
void expand_scales(f64* out, const Lanes* in, u32 byte) {
  for (int l = 0; l < 64; ++l) {
    const u64 code = in->v[l] >> (8 * byte) & 0xffu;
    out[l] = bits<f64>(code == 255 ? kNan64 : (code - 127 + 1023) << 52);
  }
}

template <int size, int K>
void multiply(const f32* a, const f32* b, const f64* sa, const f64* sb, Lanes* d, const Lanes* c) {
  for (int row0 = 0; row0 < size; row0 += kRowTile) {
    for (int col = 0; col < size; col += 16) {
      alignas(64) f64 total[kRowTile][16];
      for (int t = 0; t < kRowTile; ++t) {
        const TileRow at = tile_row<size>(0, row0 + t);
        widen(V16::load(c[at.reg].v + at.lane + col)).store(total[t]);
      }
      for (int block = 0; block < K / kBlock; ++block) {
        V16 acc[kRowTile];
#pragma GCC unroll 16
        for (int t = 0; t < kRowTile; ++t) acc[t] = V16::zero();
        for (int k = block * kBlock; k < (block + 1) * kBlock; ++k) {
          const V16 y = V16::load(b + k * size + col);
#pragma GCC unroll 16
          for (int t = 0; t < kRowTile; ++t) acc[t] = fma16_exact(V16::all(a[k * size + row0 + t]), y, acc[t]);
        }
        const D16 column_scale = D16::load(sb + block * size + col);
#pragma GCC unroll 16
        for (int t = 0; t < kRowTile; ++t) {
          add_scaled(D16::load(total[t]), widen(acc[t]), sa[block * size + row0 + t], column_scale).store(total[t]);
        }
      }
      for (int t = 0; t < kRowTile; ++t) {
        const TileRow at = tile_row<size>(0, row0 + t);
        canon16(narrow(D16::load(total[t]))).store(d[at.reg].v + at.lane + col);
      }
    }
  }
}

template <int size, int K, bool scaled>
void mfma_f8f6f4(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  alignas(64) f32 a[K * size];
  alignas(64) f32 b[K * size];
  alignas(64) f64 sa[64];
  alignas(64) f64 sb[64];
  const AluMods& m = *ctx.mods;
  expand_as<size, K>(m.cbsz, a, s[0]);
  expand_as<size, K>(m.blgp, b, s[1]);
  if constexpr (scaled) {
    expand_scales(sa, s[3], (m.op_sel & 1u) | (m.op_sel_hi & 1u) << 1);
    expand_scales(sb, s[4], (m.op_sel >> 1 & 1u) | (m.op_sel_hi >> 1 & 1u) << 1);
  } else {
    for (int l = 0; l < 64; ++l) sa[l] = sb[l] = 1.0;
  }
  multiply<size, K>(a, b, sa, sb, d, s[2]);
}

template <int size, int K, bool scaled>
constexpr AluOp row(const char* name) {
  constexpr u8 c = size * size / 64;
  AluOp r{name, mfma_f8f6f4<size, K, scaled>, Kind::mat, scaled ? u8{5} : u8{3}, {Kind::mat, Kind::mat, Kind::mat}, c, {8, 8, c},
          kMfma, static_cast<u32>(size * size * K)};
  if (scaled) {
    r.flags |= kScaled | kOpSelHiZero;
    r.src[3] = r.src[4] = Kind::b32;
    r.src_dwords[3] = r.src_dwords[4] = 1;
  }
  return r;
}

constexpr AluOp kTable[] = {
    row<16, 128, true>("v_mfma_scale_f32_16x16x128_f8f6f4"),
    row<32, 64, true>("v_mfma_scale_f32_32x32x64_f8f6f4"),
    row<16, 128, false>("v_mfma_f32_16x16x128_f8f6f4"),
    row<32, 64, false>("v_mfma_f32_32x32x64_f8f6f4"),
};

}  // namespace

std::span<const AluOp> table_mfma_scaled() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
