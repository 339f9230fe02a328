// The gate of Continuous Sparsification, `m = sigmoid(beta * s)`, in one pass over memory each way; compiled for each
// instruction set. It is here, and not with the training code, because this library is what gets compiled.
#include <atomic>

#include "interface.h"

namespace {

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float rounded(float x) { return __builtin_rintf(x); }
#else  // functions of a library would be called for these
inline float fused(float a, float b, float c) { return a * b + c; }
inline float rounded(float x) { return (x + 12582912.0f) - 12582912.0f; }
#endif

// As torch.sigmoid computes it for vectors, with the exponential of SLEEF, whose constants these are: so that results
// are the same bits. Zero where it is at most `closed`, so that large numbers need only stay finite here.
inline float soft_mask(float score, float beta, float closed) {
  float x = -(score * beta);
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float n = rounded(x * 1.442695040888963f);
  const float r = fused(n, -1.428606765330187e-06f, fused(n, -0.693145751953125f, x));
  float series = 0.000198527617612853646278381f;
  series = fused(series, r, 0.00139304355252534151077271f);
  series = fused(series, r, 0.00833336077630519866943359f);
  series = fused(series, r, 0.0416664853692054748535156f);
  series = fused(series, r, 0.166666671633720397949219f);
  series = fused(series, r, 0.5f);
  const float mantissa = 1.0f + fused(r * r, series, r);
  const int32_t bits = ((int32_t)n + 127) << 23;
  float power;
  __builtin_memcpy(&power, &bits, sizeof power);
  const float m = 1.0f / (1.0f + mantissa * power);
  return m <= closed ? 0.0f : m;
}

// A pass over the numbers from `begin` to `end`; returns a sum, if it takes one.
typedef float (*Pass)(const Gate&, int64_t begin, int64_t end);

// Returns the sum of the soft masks.
float forward(const Gate& gate, int64_t begin, int64_t end) {
  const float *w = gate.weight, *s = gate.score;
  float* out = gate.gated;
  const float beta = gate.beta, scale = gate.scale, closed = gate.closed;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = begin; i < end; ++i) {
    const float m = soft_mask(s[i], beta, closed);
    sum += m;
    out[i] = 0.0f + scale * m * w[i];
  }
  return sum;
}

// Returns the sum of the weights times their gradients: the gradient of log(scale).
float backward(const Gate& gate, int64_t begin, int64_t end) {
  const float *w = gate.weight, *s = gate.score, *g = gate.gradient;
  float *grad_w = gate.grad_weight, *grad_s = gate.grad_score;
  const float beta = gate.beta, scale = gate.scale, closed = gate.closed, l1 = gate.grad_l1;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = begin; i < end; ++i) {
    const float m = soft_mask(s[i], beta, closed);
    const float grad_m = fused(scale * g[i], w[i], l1), grad = 0.0f + scale * m * g[i];
    sum = fused(grad, w[i], sum);
    grad_w[i] = grad;
    grad_s[i] = grad_m * (1.0f - m) * m * beta;
  }
  return sum;
}

float l1(const Gate& gate, int64_t begin, int64_t end) {
  const float* s = gate.score;
  const float beta = gate.beta, closed = gate.closed;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = begin; i < end; ++i) sum += soft_mask(s[i], beta, closed);
  return sum;
}

float l1_backward(const Gate& gate, int64_t begin, int64_t end) {
  const float* s = gate.score;
  float* grad_s = gate.grad_score;
  const float beta = gate.beta, closed = gate.closed, grad = gate.grad_l1;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float m = soft_mask(s[i], beta, closed);
    grad_s[i] = grad * (1.0f - m) * m * beta;
  }
  return 0;
}

// `s <- s - scale * gradient / beta`, but where that quotient is not finite.
float move(const Gate& gate, int64_t begin, int64_t end) {
  const float* g = gate.gradient;
  float* s = gate.score;
  const float beta = gate.beta, scale = gate.scale;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float step = g[i] / beta;
    s[i] = fused(-scale, step - step == 0.0f ? step : 0.0f, s[i]);
  }
  return 0;
}

const Pass PASSES[] = {forward, backward, l1, l1_backward, move};  // in the order of gates/native.py
const int64_t MOST_BLOCKS = 256, SMALLEST_BLOCK = 8192;

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Blocks are taken by whichever thread comes first, so a thread that is late does not hold up the others. Their sums
// are added up in order: the result does not depend on threads.
struct Work {
  const Gate& gate;
  Pass pass;
  int64_t block, blocks;
  double sums[MOST_BLOCKS];
  std::atomic<int64_t> next{0};
};

void work_on(void* of) {
  Work& work = *(Work*)of;
  for (int64_t i; (i = work.next.fetch_add(1)) < work.blocks;) {
    const int64_t end = least((i + 1) * work.block, work.gate.count);
    for (int64_t begin = i * work.block; begin < end; begin += SMALLEST_BLOCK)
      work.sums[i] += work.pass(work.gate, begin, least(begin + SMALLEST_BLOCK, end));
  }
}

}  // namespace

// Makes a pass (by its place in PASSES) with `threads` threads. These are the caller's own: `parallel` is the function
// GOMP_parallel of its OpenMP library. Threads of ours would fight with those, which wait in a loop for their next work.
extern "C" __attribute__((visibility("default"))) double GATES(
    const Gate* gate, int64_t pass, int64_t threads,
    void (*parallel)(void (*)(void*), void*, unsigned, unsigned)) {
  Work work{*gate, PASSES[pass], 0, 0, {}};
  work.block = (gate->count / (MOST_BLOCKS * SMALLEST_BLOCK) + 1) * SMALLEST_BLOCK;
  work.blocks = (gate->count + work.block - 1) / work.block;
  if (threads > work.blocks) threads = work.blocks;
  if (threads > 1) parallel(work_on, &work, (unsigned)threads, 0);
  else work_on(&work);
  double sum = 0;
  for (int64_t i = 0; i < work.blocks; ++i) sum += work.sums[i];
  return sum;
}
