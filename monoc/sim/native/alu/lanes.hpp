// Building blocks of the ALU functions: typed views of 64-lane registers and templates that turn a scalar lambda into a
// 64-lane function and its AluOp row. Included by sources that are compiled once per instruction set: everything here has
// internal linkage, so that no build's code can stand in for another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "alu.hpp"

#ifndef MONOC_ALU_NS
#error "MONOC_ALU_NS names the instruction set build"
#endif

// The lanes of a register do not depend on each other, also when a destination is one of the sources.
#define MONOC_LANES _Pragma("GCC ivdep") for (int i = 0; i < 64; ++i)

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;
using f32 = float;
using f64 = double;

constexpr u32 kNan32 = 0x7fc00000u;
constexpr u64 kNan64 = 0x7ff8000000000000ull;

template <class T, class F>
[[gnu::always_inline]] constexpr T bits(F value) {
  static_assert(sizeof(T) == sizeof(F));
  return __builtin_bit_cast(T, value);
}

// x >> n, for lambdas inside template argument lists, where some compilers take `>>` for their end.
template <class T>
[[gnu::always_inline]] constexpr T shr(T x, u32 n) {
  return static_cast<T>(x >> n);
}

constexpr i32 sat_i32(i64 x) { return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : static_cast<i32>(x); }

// An IEEE half as bits: arithmetic goes through f32 or f64.
struct f16 {
  u16 v;
};

// Which NaN an x86 instruction returns depends on operand order, which compilers may change: every NaN result becomes the
// positive quiet one, so that all builds give the same bits.
[[gnu::always_inline]] inline f32 canon(f32 x) { return x == x ? x : bits<f32>(kNan32); }
[[gnu::always_inline]] inline f64 canon(f64 x) { return x == x ? x : bits<f64>(kNan64); }

template <class T> struct KindOf;
template <> struct KindOf<u32> { static constexpr Kind kind = Kind::u32; };
template <> struct KindOf<i32> { static constexpr Kind kind = Kind::i32; };
template <> struct KindOf<f32> { static constexpr Kind kind = Kind::f32; };
template <> struct KindOf<u64> { static constexpr Kind kind = Kind::u64; };
template <> struct KindOf<i64> { static constexpr Kind kind = Kind::i64; };
template <> struct KindOf<f64> { static constexpr Kind kind = Kind::f64; };
template <> struct KindOf<u16> { static constexpr Kind kind = Kind::u16; };
template <> struct KindOf<i16> { static constexpr Kind kind = Kind::i16; };
template <> struct KindOf<f16> { static constexpr Kind kind = Kind::f16; };

// Lane i of an operand of type T; half-words are read from bit `shift`.
template <class T>
struct Src {
  const u32* lo;
  const u32* hi;
  u32 shift;
  explicit Src(const Lanes* lanes, u32 half = 0) : lo(lanes[0].v), hi(sizeof(T) == 8 ? lanes[1].v : nullptr), shift(half * 16) {}
  [[gnu::always_inline]] T operator[](int i) const {
    if constexpr (sizeof(T) == 8) {
      return bits<T>(u64{lo[i]} | u64{hi[i]} << 32);
    } else if constexpr (sizeof(T) == 2) {
      return bits<T>(static_cast<u16>(lo[i] >> shift));
    } else {
      return bits<T>(lo[i]);
    }
  }
};

// A 32-bit or 64-bit result lane.
template <class T>
struct Dst {
  u32* lo;
  u32* hi;
  explicit Dst(Lanes* lanes) : lo(lanes[0].v), hi(sizeof(T) == 8 ? lanes[1].v : nullptr) {}
  [[gnu::always_inline]] void set(int i, T value) const {
    if constexpr (sizeof(T) == 8) {
      const u64 b = bits<u64>(value);
      lo[i] = static_cast<u32>(b);
      hi[i] = static_cast<u32>(b >> 32);
    } else if constexpr (sizeof(T) == 2) {
      lo[i] = bits<u16>(value);
    } else {
      lo[i] = bits<u32>(value);
    }
  }
};

// One bit a lane from 64 words that are 0 or ~0.
inline u64 pack_mask(const u32* words);

// Signature of a lambda used as a template argument.
template <class M> struct Signature;
template <class L, class R, class... A>
struct Signature<R (L::*)(A...) const> {
  using Result = R;
  static constexpr int arity = sizeof...(A);
  static constexpr bool half = (false || ... || (sizeof(A) == 2)) || sizeof(R) == 2;

  template <auto F, size_t... I>
  [[gnu::always_inline]] static void each(Lanes* d, std::index_sequence<I...>, Src<A>... s) {
    const Dst<R> out(d);
    MONOC_LANES out.set(i, F(s[i]...));
  }
  template <auto F, size_t... I>
  static void plain(Lanes* d, const Lanes* const* s, std::index_sequence<I...> index) {
    each<F>(d, index, Src<A>(s[I])...);
  }
  // 16-bit operations: op_sel picks the half of each source and of the destination.
  template <auto F, bool keep, size_t... I>
  static void halves(Lanes* d, const Lanes* const* s, const AluMods& mods, std::index_sequence<I...> index) {
    if (sizeof(R) != 2 || (!keep && (mods.op_sel & 8) == 0)) {
      return each<F>(d, index, Src<A>(s[I], sizeof(A) == 2 ? (mods.op_sel >> I) & 1 : 0)...);
    }
    Lanes result;
    each<F>(&result, index, Src<A>(s[I], sizeof(A) == 2 ? (mods.op_sel >> I) & 1 : 0)...);
    u32* out = d->v;
    if (mods.op_sel & 8) {
      MONOC_LANES out[i] = (out[i] & 0xffffu) | result.v[i] << 16;
    } else {
      MONOC_LANES out[i] = (out[i] & 0xffff0000u) | result.v[i];
    }
  }
  // f(old destination, sources...).
  template <auto F, size_t... I>
  [[gnu::always_inline]] static void each_mask(u32* m, std::index_sequence<I...>, Src<A>... s) {
    MONOC_LANES m[i] = F(s[i]...) ? ~0u : 0u;
  }
  template <auto F, size_t... I>
  static u64 mask(const Lanes* const* s, const AluMods& mods, std::index_sequence<I...> index) {
    alignas(64) u32 words[64];
    each_mask<F>(words, index, Src<A>(s[I], sizeof(A) == 2 ? (mods.op_sel >> I) & 1 : 0)...);
    return pack_mask(words);
  }
  static constexpr AluOp row(const char* name, AluFn fn, Kind dst, u32 flags, int skip) {
    AluOp op{name, fn, dst, static_cast<u8>(arity - skip), {}, static_cast<u8>(dwords(dst)), {}, flags, 0};
    const Kind kinds[] = {KindOf<A>::kind...};
    for (int i = 0; i + skip < arity; ++i) {
      op.src[i] = kinds[i + skip];
      op.src_dwords[i] = static_cast<u8>(dwords(op.src[i]));
    }
    return op;
  }
};

template <auto F>
using SignatureOf = Signature<decltype(&decltype(F)::operator())>;
template <auto F>
using IndexOf = std::make_index_sequence<SignatureOf<F>::arity>;

template <auto F>
[[gnu::flatten]] void run(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  if constexpr (SignatureOf<F>::half) {
    SignatureOf<F>::template halves<F, false>(d, s, *ctx.mods, IndexOf<F>{});
  } else {
    SignatureOf<F>::template plain<F>(d, s, IndexOf<F>{});
  }
}

template <auto F, auto Clamped>
[[gnu::flatten]] void run_keep(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  ctx.mods->clamp ? SignatureOf<F>::template halves<Clamped, true>(d, s, *ctx.mods, IndexOf<F>{})
                  : SignatureOf<F>::template halves<F, true>(d, s, *ctx.mods, IndexOf<F>{});
}

template <auto F, auto Clamped>
[[gnu::flatten]] void run_clamp(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  ctx.mods->clamp ? run<Clamped>(d, s, ctx) : run<F>(d, s, ctx);
}

template <auto F>
[[gnu::flatten]] void run_compare(Lanes*, const Lanes* const* s, AluCtx& ctx) {
  ctx.mask_out = SignatureOf<F>::template mask<F>(s, *ctx.mods, IndexOf<F>{});
}

// F(old destination, sources...).
template <auto F>
[[gnu::flatten]] void run_acc(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Lanes* with_dst[5] = {d};
  for (int i = 1; i < SignatureOf<F>::arity; ++i) with_dst[i] = s[i - 1];
  run<F>(d, with_dst, ctx);
}

// An elementwise operation; 16-bit ones may write the high half (op_sel), so they read the destination.
template <auto F>
constexpr AluOp op(const char* name, u32 flags = 0) {
  using S = SignatureOf<F>;
  using R = typename S::Result;
  return S::row(name, run<F>, KindOf<R>::kind, flags | (sizeof(R) == 2 ? u32{kReadsDst} : 0u), 0);
}

// A 16-bit operation that keeps the other half of its destination also when it writes the low one.
template <auto F, auto Clamped = F>
constexpr AluOp op_keep(const char* name, u32 flags = 0) {
  using S = SignatureOf<F>;
  return S::row(name, run_keep<F, Clamped>, KindOf<typename S::Result>::kind, flags | kReadsDst, 0);
}

template <auto F, auto Clamped>
constexpr AluOp op_clamp(const char* name, u32 flags = 0) {
  AluOp row = op<F>(name, flags);
  row.fn = run_clamp<F, Clamped>;
  return row;
}

template <auto F>
constexpr AluOp op_acc(const char* name, u32 flags = 0) {
  using S = SignatureOf<F>;
  return S::row(name, run_acc<F>, KindOf<typename S::Result>::kind, flags | kReadsDst, 1);
}

template <auto F>
constexpr AluOp compare(const char* name, u32 flags = 0) {
  return SignatureOf<F>::row(name, run_compare<F>, Kind::none, flags | kMaskDst, 0);
}

// A hand-written 64-lane function.
constexpr AluOp custom(const char* name, AluFn fn, Kind dst, std::initializer_list<Kind> src, u32 flags = 0) {
  AluOp row{name, fn, dst, static_cast<u8>(src.size()), {}, static_cast<u8>(dwords(dst)), {}, flags, 0};
  int i = 0;
  for (Kind kind : src) {
    row.src[i] = kind;
    row.src_dwords[i++] = static_cast<u8>(dwords(kind));
  }
  return row;
}

inline u64 pack_mask(const u32* words) {
#if defined(__AVX512F__)
  u64 mask = 0;
  for (int q = 0; q < 4; ++q) {
    const __m512i w = _mm512_load_si512(words + 16 * q);
    mask |= u64{_mm512_test_epi32_mask(w, w)} << (16 * q);
  }
  return mask;
#elif defined(__AVX2__)
  u64 mask = 0;
  for (int q = 0; q < 8; ++q) {
    const __m256 w = _mm256_load_ps(reinterpret_cast<const float*>(words + 8 * q));
    mask |= u64{static_cast<u32>(_mm256_movemask_ps(w))} << (8 * q);
  }
  return mask;
#elif defined(__SSE2__)
  u64 mask = 0;
  for (int q = 0; q < 16; ++q) {
    const __m128 w = _mm_load_ps(reinterpret_cast<const float*>(words + 4 * q));
    mask |= u64{static_cast<u32>(_mm_movemask_ps(w))} << (4 * q);
  }
  return mask;
#else
  u64 mask = 0;
  for (int i = 0; i < 64; ++i) mask |= u64{words[i] & 1} << i;
  return mask;
#endif
}

// 64 words that are 0 or ~0 from one bit a lane.
inline void unpack_mask(u64 mask, u32* words) {
  for (int h = 0; h < 2; ++h) {
    const u32 half = static_cast<u32>(mask >> (32 * h));
    u32* out = words + 32 * h;
    for (u32 i = 0; i < 32; ++i) out[i] = 0u - ((half >> i) & 1u);
  }
}

}  // namespace
}  // namespace monoc::sim::alu::MONOC_ALU_NS
