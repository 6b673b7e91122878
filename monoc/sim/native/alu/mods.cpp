// Source and result modifiers of the float kinds (abs, neg; omod, clamp) and denormal flushing.
#include "formats.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

template <class F>
[[gnu::always_inline]] inline void each_word(Lanes* d, const Lanes* s, F f) {
  u32* r = d->v;
  const u32* a = s->v;
  MONOC_LANES r[i] = f(a[i]);
}

template <class T>
T output_mods(T x, T factor, bool clamp, bool nan_to_zero) {
  const T scaled = canon(x * factor);
  const T low = scaled > T{0} ? scaled : scaled == scaled || nan_to_zero ? T{0} : scaled;
  return !clamp ? scaled : low > T{1} ? T{1} : low;
}

u32 flush_word(u32 b) { return (b & 0x7f800000u) == 0 ? b & 0x80000000u : b; }
u32 flush_halves(u32 b) {
  const u32 low = b & 0x7c00u ? 0xffffu : 0x8000u;
  const u32 high = b & 0x7c000000u ? 0xffff0000u : 0x80000000u;
  return b & (low | high);
}

}  // namespace

void load_mods(Kind kind, Lanes* dst, const Lanes* src, bool abs, bool neg) {
  const bool half = kind == Kind::f16 || kind == Kind::bf16;
  const int sign_word = kind == Kind::f64 ? 1 : 0;
  if (kind == Kind::f64 && dst != src) each_word(dst, src, [](u32 x) { return x; });
  const u32 sign = half ? 0x80008000u : 0x80000000u;
  const u32 keep = abs ? ~sign : ~0u;
  const u32 flip = neg ? sign : 0u;
  each_word(dst + sign_word, src + sign_word, [=](u32 x) { return (x & keep) ^ flip; });
}

void store_mods(Kind kind, Lanes* dst, uint8_t omod, bool clamp, uint32_t mode) {
  constexpr f32 factors[] = {1.0f, 2.0f, 4.0f, 0.5f};
  const f32 factor = factors[omod & 3];
  const bool dx10 = mode & 0x100u;
  if (kind == Kind::f32) {
    each_word(dst, dst, [=](u32 x) { return bits<u32>(output_mods(bits<f32>(x), factor, clamp, dx10)); });
  } else if (kind == Kind::f16) {
    each_word(dst, dst, [=](u32 x) {
      return (x & 0xffff0000u) | f32_to_half(output_mods(half_to_f32(x & 0xffffu), factor, clamp, dx10));
    });
  } else if (kind == Kind::f64) {
    const Src<f64> in(dst);
    const Dst<f64> out(dst);
    for (int i = 0; i < 64; ++i) out.set(i, output_mods(in[i], f64{factor}, clamp, dx10));
  }
}

void flush(Kind kind, Lanes* value) {
  switch (kind) {
    case Kind::pk_f32:
      each_word(value + 1, value + 1, flush_word);
      [[fallthrough]];
    case Kind::f32:
      each_word(value, value, flush_word);
      break;
    case Kind::f16:
    case Kind::pk_f16:
      each_word(value, value, flush_halves);
      break;
    case Kind::f64:
      for (int i = 0; i < 64; ++i) {
        if ((value[1].v[i] & 0x7ff00000u) == 0) {
          value[1].v[i] &= 0x80000000u;
          value[0].v[i] = 0;
        }
      }
      break;
    default:
      break;
  }
}

}  // namespace monoc::sim::alu::MONOC_ALU_NS
