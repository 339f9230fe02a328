// The kernels, compiled once for each instruction set, so that the same text serves AVX-512, AVX2 and
// anything else.
//
// Everything is in an anonymous namespace, and nothing of the C++ library is used: an inline function
// that the linker shares with other files could bring instructions that the processor does not have.
#include <math.h>
#include <string.h>

#include "core.h"

namespace {

#include "vectors.h"

#include "convolution.h"

// ---------------------------------------------------------------------------------------------
// Fully connected layers of one image

inline void finish(const Instruction& op, const Chunk& chunk, int64_t f, float v) {
  if (op.b.offset >= 0) v += *plane_of(op.b, chunk, f);
  clear_margins(op.out, chunk, f, 0, 1);
  *plane_of(op.out, chunk, f) = bounded(op, v);
}

void linear(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int32_t* starts = chunk.program->ints + op.ints;
  const int32_t* blocks = starts + op.out.channels + 1;
  const Entry* entries = chunk.program->entries + op.entries;
  const float* bias = chunk.program->floats + op.floats;
  const float* in = chunk.arena + op.a.offset;
  for (int64_t f = blocks[item]; f < blocks[item + 1]; ++f) {
    float s0 = bias[f], s1 = 0, s2 = 0, s3 = 0;
    int64_t i = starts[f];
    const int64_t end = starts[f + 1];
    for (; i + 4 <= end; i += 4) {
      s0 += entries[i].value * in[entries[i].offset];
      s1 += entries[i + 1].value * in[entries[i + 1].offset];
      s2 += entries[i + 2].value * in[entries[i + 2].offset];
      s3 += entries[i + 3].value * in[entries[i + 3].offset];
    }
    for (; i < end; ++i) s0 += entries[i].value * in[entries[i].offset];
    finish(op, chunk, f, (s0 + s1) + (s2 + s3));
  }
}

inline float total(Vector v) {
  float sum = 0;
  for (int i = 0; i < LANES; ++i) sum += v[i];
  return sum;
}

void matrix(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int32_t* blocks = chunk.program->ints + op.ints + op.out.channels + 1;
  const float* bias = chunk.program->floats + op.floats;
  const float* in = chunk.arena + op.a.offset;
  const int64_t inputs = op.a.channels;
  for (int64_t f = blocks[item]; f < blocks[item + 1]; ++f) {
    const float* row = bias + op.out.channels + f * inputs;
    Vector s0 = {}, s1 = {}, s2 = {}, s3 = {};
    int64_t i = 0;
    for (; i + 4 * LANES <= inputs; i += 4 * LANES) {
      s0 += load(row + i) * load(in + i);
      s1 += load(row + i + LANES) * load(in + i + LANES);
      s2 += load(row + i + 2 * LANES) * load(in + i + 2 * LANES);
      s3 += load(row + i + 3 * LANES) * load(in + i + 3 * LANES);
    }
    float sum = total((s0 + s1) + (s2 + s3)) + bias[f];
    for (; i < inputs; ++i) sum += row[i] * in[i];
    finish(op, chunk, f, sum);
  }
}

// ---------------------------------------------------------------------------------------------
// In, out, copies

void load_input(const Instruction& op, const Chunk& chunk, int64_t item) {
  const Place& v = op.out;
  const auto [c, begin, end] = band_of(op, v, item);
  if (op.option && c >= chunk.length) return;
  const int64_t lanes = chunk.program->lanes, size = chunk.input_size;
  float* plane = plane_of(v, chunk, c);
  const float* x = chunk.x + (c * v.height + begin) * v.width;
  for (int64_t y = begin; y < end; ++y, x += v.width) {
    float* out = plane + y * v.pitch;
    if (lanes == 1) {
      memcpy(out, x, v.width * sizeof(float));
    } else if (chunk.images == lanes) {
      with_lanes<LANES>(lanes, [&](auto n) {
        for (int64_t i = 0; i < v.width; ++i)
          for (int64_t l = 0; l < n.value; ++l) out[i * n.value + l] = x[l * size + i];
      });
    } else {
      for (int64_t i = 0; i < v.width; ++i)
        for (int64_t l = 0; l < lanes; ++l) out[i * lanes + l] = l < chunk.images ? x[l * size + i] : 0;
    }
  }
  clear_margins(v, chunk, c, begin, end);
}

void store_output(const Instruction& op, const Chunk& chunk, int64_t item) {
  const Place& v = op.a;
  const auto [c, begin, end] = band_of(op, v, item);
  if (op.option && c >= chunk.length) return;
  const int64_t lanes = chunk.program->lanes, width = op.option ? v.width : used_width(v, chunk);
  const float* plane = plane_of(v, chunk, c);
  for (int64_t l = 0; l < chunk.images; ++l) {
    float* y = chunk.y + l * chunk.output_size + (c * v.height + begin) * width;
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < width; ++i) *y++ = plane[r * v.pitch + i * lanes + l];
  }
}

void copy(const Instruction& op, const Chunk& chunk, int64_t item) {
  const Place &a = op.a, &v = op.out;
  const auto [c, first, last] = band_of(op, v, item);
  const int64_t lanes = chunk.program->lanes;
  const CopyParameters& p = op.parameters.copy;
  const int64_t left = p.left, step = p.column_step;
  // Columns [begin, end) of the output are inside of the input.
  int64_t begin = 0, end = v.width;
  while (begin < end && left + begin * step < 0) ++begin;
  while (end > begin && left + (end - 1) * step >= a.width) --end;
  const float* from = plane_of(a, chunk, c);
  float* plane = plane_of(v, chunk, c);
  for (int64_t y = first; y < last; ++y) {
    float* out = plane + y * v.pitch;
    const int64_t row = p.top + y * p.row_step;
    if (row < 0 || row >= a.height || begin == end) {
      clear(out, v.width * lanes);
      continue;
    }
    clear(out, begin * lanes);
    clear(out + end * lanes, (v.width - end) * lanes);
    const float* in = from + row * a.pitch + left * lanes;
    if (step == 1)
      memcpy(out + begin * lanes, in + begin * lanes, (end - begin) * lanes * sizeof(float));
    else if (lanes == 1 && step == 2)
      for (int64_t x = begin; x < end; x += LANES)
        store_upto(out + x, load_even(in + 2 * x), end - x);
    else if (lanes == 1)
      for (int64_t x = begin; x < end; ++x) out[x] = in[x * step];
    else
      with_lanes<LANES>(lanes, [&](auto n) {
        for (int64_t x = begin; x < end; ++x)
          memcpy(out + x * n.value, in + x * step * n.value, n.value * sizeof(float));
      });
  }
  clear_margins(v, chunk, c, first, last);
}

// ---------------------------------------------------------------------------------------------
// Pooling

struct Larger {
  static float start() { return -INFINITY; }
  static float join(float a, float b) { return a > b || a != a ? a : b; }
  template <class V>
  static V join(V a, V b) { return a > b ? a : (a != a ? a : b); }
};
struct Sum {
  static float start() { return 0; }
  template <class V>
  static V join(V a, V b) { return a + b; }
};

template <class Way>
void pool(const Instruction& op, const Chunk& chunk, int64_t item) {
  const Place &a = op.a, &v = op.out;
  const auto [c, first, last] = band_of(op, v, item);
  const PoolParameters& p = op.parameters.pool;
  const int64_t lanes = chunk.program->lanes;
  const int32_t* rows = chunk.program->ints + op.ints;
  const int32_t* columns = rows + 2 * v.height;
  const float* by_row = op.kernel == AVG_POOL ? chunk.program->floats + op.floats : nullptr;
  const float* from = plane_of(a, chunk, c);
  float* plane = plane_of(v, chunk, c);
  for (int64_t y = first; y < last; ++y) {
    float* out = plane + y * v.pitch;
    // Whole windows of one image: along the row.
    const int64_t stride = p.stride;
    const bool along = lanes == 1 && stride <= 2;
    const int64_t begin = along ? p.whole_begin : 0, end = along ? p.whole_end : 0;
    for (int64_t x = begin; x < end; x += LANES) {
      Vector sum = splat(Way::start());
      for (int64_t r = rows[2 * y]; r < rows[2 * y + 1]; r += p.row_step)
        for (int64_t k = 0; k < p.columns; ++k) {
          const float* in = from + r * a.pitch + columns[2 * x] + k * p.column_step;
          sum = Way::join(sum, stride == 1 ? load(in) : load_even(in));
        }
      // The rows that follow are written later, so what is behind this one may be anything yet.
      if (out + x + LANES <= plane + last * v.pitch) store(out + x, sum);
      else store_upto(out + x, sum, end - x);
    }
    with_lanes<LANES>(lanes, [&](auto n) {
      typedef typename Some<n.value>::Type Position;
      for (int64_t x = 0; x < v.width; ++x) {
        if (x == begin && begin < end) x = end;
        if (x == v.width) break;
        Position sum = Way::start() - Position{};
        for (int64_t r = rows[2 * y]; r < rows[2 * y + 1]; r += p.row_step)
          for (int64_t k = columns[2 * x]; k < columns[2 * x + 1]; k += p.column_step)
            sum = Way::join(sum, *(const Position*)(from + r * a.pitch + k * n.value));
        *(Position*)(out + x * n.value) = sum;
      }
    });
    if (by_row)
      for (int64_t x = 0; x < v.width; ++x)
        for (int64_t l = 0; l < lanes; ++l) out[x * lanes + l] *= by_row[y] * by_row[v.height + x];
  }
  clear_margins(v, chunk, c, first, last);
}

void max_pool(const Instruction& op, const Chunk& chunk, int64_t item) { pool<Larger>(op, chunk, item); }
void avg_pool(const Instruction& op, const Chunk& chunk, int64_t item) { pool<Sum>(op, chunk, item); }

// ---------------------------------------------------------------------------------------------
// One element after the other

template <class Function>
void each(const Instruction& op, const Chunk& chunk, int64_t item, Function function) {
  const auto [c, begin, end] = band_of(op, op.out, item);
  const int64_t count = used_width(op.out, chunk) * chunk.program->lanes;
  const float* a = plane_of(op.a, chunk, c);
  float* out = plane_of(op.out, chunk, c);
  for (int64_t y = begin; y < end; ++y)
    for (int64_t i = 0; i < count; ++i) out[y * op.out.pitch + i] = function(a[y * op.a.pitch + i], y, i);
  clear_margins(op.out, chunk, c, begin, end);
}

template <class Join>
void pairwise(const Instruction& op, const Chunk& chunk, int64_t item, Join join) {
  const float* b = plane_of(op.b, chunk, item % op.out.channels);
  const int64_t pitch = op.b.pitch;
  if (!op.option)
    each(op, chunk, item, [=](float v, int64_t y, int64_t i) { return join(v, b[y * pitch + i]); });
  else
    with_lanes<LANES>(chunk.program->lanes, [&](auto n) {
      each(op, chunk, item, [=](float v, int64_t, int64_t i) { return join(v, b[i % n.value]); });
    });
}

void add(const Instruction& op, const Chunk& chunk, int64_t item) {
  pairwise(op, chunk, item, [](float a, float b) { return a + b; });
}

void multiply(const Instruction& op, const Chunk& chunk, int64_t item) {
  pairwise(op, chunk, item, [](float a, float b) { return a * b; });
}

void affine(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int64_t c = item % op.out.channels;
  const float* scale = chunk.program->floats + op.floats;
  const float s = scale[c], t = scale[op.out.channels + c];
  each(op, chunk, item, [=](float v, int64_t, int64_t) { return v * s + t; });
}

void add_plane(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int64_t width = op.out.width;
  const float* plane = chunk.program->floats + op.floats + item % op.out.channels * op.out.height * width;
  with_lanes<LANES>(chunk.program->lanes, [&](auto n) {
    each(op, chunk, item, [=](float v, int64_t y, int64_t i) { return v + plane[y * width + i / n.value]; });
  });
}

// The nearest multiples of a step, as integers from `low` to `high` behind the point of the magic number. What
// is not a number becomes `low`.
inline Vector steps(Vector v, Vector by_step, Vector low, Vector high) {
  const Vector x = v * by_step, least = x > low ? x : low;
  return (least < high ? least : high) + splat(MAGIC);
}

// Packs of four channels have them side by side in bytes that count steps from `low` on.
void quantize(const Instruction& op, const Chunk& chunk, int64_t item) {
  const Place &a = op.a, &v = op.out;
  const auto [c, begin, end] = band_of(op, v, item);
  const Vector by_step = splat((float)(1 / op.number)), step = splat((float)op.number);
  const Vector low = splat((float)op.low), high = splat((float)op.high);
  // Rows of both are equally far apart; between them is zero, which stays zero.
  const bool whole = used_width(v, chunk) == v.width;
  const int64_t count = whole ? (end - begin) * v.pitch : used_width(v, chunk) * chunk.program->lanes;
  float* out = plane_of(v, chunk, c) + begin * v.pitch;
  if (!op.option) {
    const float* in = plane_of(a, chunk, c) + begin * a.pitch;
    for (int64_t i = 0; i < count; i += LANES)
      store_upto(out + i, (steps(load(in + i), by_step, low, high) - splat(MAGIC)) * step, count - i);
    clear_margins(v, chunk, c, begin, end);
    return;
  }
  const Bits base = (Bits)(low + splat(MAGIC));
  const auto byte = [&](int64_t k, int64_t i) {
    const float* in = plane_of(a, chunk, 4 * c + k) + begin * a.pitch;
    return ((Bits)steps(load(in + i), by_step, low, high) - base) << (int)(8 * k);
  };
  const int64_t channels = a.channels - 4 * c;
  for (int64_t i = 0; i < count; i += LANES) {
    Bits four = byte(0, i);
    if (channels > 1) four |= byte(1, i);
    if (channels > 2) four |= byte(2, i);
    if (channels > 3) four |= byte(3, i);
    store_upto(out + i, (Vector)four, count - i);
  }
  if (begin > 0) return;
  const int32_t zero = -(int32_t)op.low * 0x01010101;
  const auto fill = [&](float* p, int64_t floats) {
    for (int64_t i = 0; i < floats; ++i) memcpy(p + i, &zero, sizeof zero);
  };
  if (c == 0) fill(out - v.lead, v.lead);
  fill(out + v.height * v.pitch, v.tail);
}

inline Vector clamp(Vector v, float low, float high) { return at_most(at_least(v, splat(low)), splat(high)); }
inline Vector sigmoid(Vector v) { return splat(1.0f) / (splat(1.0f) + exponential(-v)); }
inline Vector hyperbolic_tangent(Vector v) { return splat(2.0f) * sigmoid(v + v) - splat(1.0f); }

template <int COUNT>
inline Vector polynomial(Vector v, const float (&factors)[COUNT]) {
  Vector sum = splat(factors[0]);
#pragma GCC unroll 8
  for (int i = 1; i < COUNT; ++i) sum = sum * v + splat(factors[i]);
  return sum;
}

// A quotient of polynomials, within 5e-7 everywhere: faster than with an exponential.
inline Vector error_function(Vector v) {
  const Vector x = clamp(v, -4, 4), square = x * x;
  const Vector above = polynomial(square, {-2.72614225e-10f, 2.77068142e-08f, -2.10102402e-06f, -5.69250639e-05f,
                                           -7.34990630e-04f, -2.95459981e-03f, -1.60960333e-02f});
  const Vector below = polynomial(square, {-1.45660718e-05f, -2.13374055e-04f, -1.68282697e-03f, -7.37332917e-03f,
                                           -1.42647391e-02f});
  return x * above / below;
}

void activation(const Instruction& op, const Chunk& chunk, int64_t item) {
  const float low = (float)op.low, high = (float)op.high;
  const Vector slope = splat((float)op.number), one = splat(1.0f), zero = {};
  const auto run = [&](auto function) {
    const auto [c, begin, end] = band_of(op, op.out, item);
    const int64_t count = used_width(op.out, chunk) * chunk.program->lanes;
    for (int64_t y = begin; y < end; ++y) {
      const float* a = plane_of(op.a, chunk, c) + y * op.a.pitch;
      float* out = plane_of(op.out, chunk, c) + y * op.out.pitch;
      for (int64_t i = 0; i < count; i += LANES) store_upto(out + i, function(load(a + i)), count - i);
    }
    clear_margins(op.out, chunk, c, begin, end);
  };
  switch ((Activation)op.option) {
    case CLAMP: return run([=](Vector v) { return clamp(v, low, high); });
    case LEAKY_RELU: return run([=](Vector v) { return v < zero ? v * slope : v; });
    case ELU: return run([=](Vector v) { return v < zero ? slope * (exponential(v) - one) : v; });
    case SIGMOID: return run([](Vector v) { return sigmoid(v); });
    case TANH: return run([](Vector v) { return hyperbolic_tangent(v); });
    case SILU: return run([](Vector v) { return v * sigmoid(v); });
    case HARDSWISH: return run([](Vector v) { return v * clamp(v + splat(3.0f), 0, 6) / splat(6.0f); });
    case HARDSIGMOID: return run([](Vector v) { return clamp(v + splat(3.0f), 0, 6) / splat(6.0f); });
    case GELU: return run([=](Vector v) { return splat(0.5f) * v * (one + error_function(v * splat(0.70710678f))); });
    case GELU_TANH:
      return run([](Vector v) { return v * sigmoid(splat(1.59576912f) * (v + splat(0.044715f) * v * v * v)); });
  }
}

#include "tokens.h"

}  // namespace

// By Kernel: a kernel that interface.py declares and that is not defined here does not compile.
#define ADDRESS(kernel) kernel,
extern const KernelFunction KERNELS[] = {FOR_EACH_KERNEL(ADDRESS)};
static_assert(sizeof(KERNELS) / sizeof(*KERNELS) == KERNEL_COUNT, "every kernel has a function");
extern const int64_t MOST_VECTORS = MOST;
