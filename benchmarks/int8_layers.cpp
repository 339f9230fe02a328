// A linear layer of tokens on one thread: lists of kept weights and bundles of filters with all weights in
// float32, as the runtime has them; and lists of groups of four inputs in int8, as VNNI multiplies them. Prints one
// line of JSON for each size and density: seconds of the processor. For int8_layers.py.
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <vector>

namespace {

struct Entry {
  int32_t offset;
  float value;
};
struct Group {
  int32_t offset, values;  // four int8 weights
};

double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

template <class T>
T* aligned(int64_t count) {
  void* p = aligned_alloc(64, (count * sizeof(T) + 127) / 64 * 64);
  memset(p, 0, count * sizeof(T));
  return (T*)p;
}

struct Layer {
  int64_t inputs, outputs, positions;
  int64_t plane;  // floats between channels
  std::vector<float> weight;
  std::vector<int32_t> starts, group_starts;
  std::vector<Entry> entries;
  std::vector<Group> groups;
  std::vector<float> packed;  // all weights, in bundles: [bundle][input][filter]
  float *x, *y;
  uint8_t* x8;
};
constexpr int BUNDLE = 8, BUNDLED = 3;  // filters and vectors of a bundle

// The runtime's own way: sums of TILE vectors stay in registers while a list is walked.
template <int TILE>
void lists(const Layer& l) {
  for (int64_t p = 0; p + TILE * 16 <= l.positions; p += TILE * 16)
    for (int64_t f = 0; f < l.outputs; ++f) {
      __m512 sum[TILE];
      for (int i = 0; i < TILE; ++i) sum[i] = _mm512_set1_ps(0.5f);
      for (int32_t e = l.starts[f]; e < l.starts[f + 1]; ++e) {
        const __m512 w = _mm512_set1_ps(l.entries[e].value);
        const float* from = l.x + l.entries[e].offset + p;
        for (int i = 0; i < TILE; ++i) sum[i] = _mm512_fmadd_ps(w, _mm512_loadu_ps(from + 16 * i), sum[i]);
      }
      for (int i = 0; i < TILE; ++i) _mm512_storeu_ps(l.y + f * l.plane + p + 16 * i, sum[i]);
    }
}

template <int TILE>
void groups(const Layer& l) {
  const __m512 scale = _mm512_set1_ps(0.01f), bias = _mm512_set1_ps(0.5f);
  for (int64_t p = 0; p + TILE * 16 <= l.positions; p += TILE * 16)
    for (int64_t f = 0; f < l.outputs; ++f) {
      __m512i sum[TILE];
      for (int i = 0; i < TILE; ++i) sum[i] = _mm512_setzero_si512();
      for (int32_t e = l.group_starts[f]; e < l.group_starts[f + 1]; ++e) {
        const __m512i w = _mm512_set1_epi32(l.groups[e].values);
        const uint8_t* from = l.x8 + l.groups[e].offset + p * 4;
        for (int i = 0; i < TILE; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], _mm512_loadu_si512(from + 64 * i), w);
      }
      for (int i = 0; i < TILE; ++i)
        _mm512_storeu_ps(l.y + f * l.plane + p + 16 * i, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i]), scale, bias));
    }
}

void bundles(const Layer& l) {
  for (int64_t p = 0; p + BUNDLED * 16 <= l.positions; p += BUNDLED * 16)
    for (int64_t b = 0; b < l.outputs / BUNDLE; ++b) {
      __m512 sum[BUNDLE][BUNDLED];
      for (auto& row : sum)
        for (auto& s : row) s = _mm512_set1_ps(0.5f);
      const float* w = l.packed.data() + b * l.inputs * BUNDLE;
      for (int64_t c = 0; c < l.inputs; ++c, w += BUNDLE) {
        __m512 v[BUNDLED];
        for (int i = 0; i < BUNDLED; ++i) v[i] = _mm512_loadu_ps(l.x + c * l.plane + p + 16 * i);
        for (int f = 0; f < BUNDLE; ++f)
          for (int i = 0; i < BUNDLED; ++i) sum[f][i] = _mm512_fmadd_ps(_mm512_set1_ps(w[f]), v[i], sum[f][i]);
      }
      for (int f = 0; f < BUNDLE; ++f)
        for (int i = 0; i < BUNDLED; ++i) _mm512_storeu_ps(l.y + (b * BUNDLE + f) * l.plane + p + 16 * i, sum[f][i]);
    }
}

// Four channels of floats as bytes side by side.
void round_inputs(const Layer& l) {
  const __m512 scale = _mm512_set1_ps(25.0f), middle = _mm512_set1_ps(128.0f);
  for (int64_t g = 0; g < l.inputs / 4; ++g)
    for (int64_t p = 0; p < l.positions; p += 16) {
      __m512i bytes = _mm512_setzero_si512();
      for (int k = 3; k >= 0; --k) {
        const __m512 v = _mm512_fmadd_ps(_mm512_loadu_ps(l.x + (4 * g + k) * l.plane + p), scale, middle);
        const __m512i n = _mm512_min_epi32(_mm512_max_epi32(_mm512_cvtps_epi32(v), _mm512_setzero_si512()), _mm512_set1_epi32(255));
        bytes = _mm512_or_si512(_mm512_slli_epi32(bytes, 8), n);
      }
      _mm512_storeu_si512(l.x8 + (g * l.plane + p) * 4, bytes);
    }
}

template <class Function>
double seconds(const Layer& l, Function function) {
  double best = 1e9;
  for (int turn = 0; turn < 7; ++turn) {
    function(l);
    int calls = 0;
    const double start = now();
    double passed;
    do {
      function(l);
      ++calls;
      passed = now() - start;
    } while (passed < 0.02);
    best = std::min(best, passed / calls);
  }
  return best;
}

void measure(int64_t inputs, int64_t outputs, int64_t positions, double density) {
  Layer l{inputs, outputs, positions, positions + 16};
  l.x = aligned<float>(inputs * l.plane + 1024);
  l.y = aligned<float>(outputs * l.plane + 1024);
  l.x8 = aligned<uint8_t>(inputs * l.plane + 4096);
  for (int64_t i = 0; i < inputs * l.plane; ++i) l.x[i] = (rand() % 2001 - 1000) / 500.0f;
  l.weight.resize(inputs * outputs);
  for (auto& w : l.weight) w = rand() < density * RAND_MAX ? (rand() % 254 - 127) | 1 : 0;
  l.starts.push_back(0);
  l.group_starts.push_back(0);
  for (int64_t f = 0; f < outputs; ++f) {
    for (int64_t c = 0; c < inputs; ++c)
      if (l.weight[f * inputs + c]) l.entries.push_back({(int32_t)(c * l.plane), l.weight[f * inputs + c]});
    for (int64_t g = 0; g < inputs / 4; ++g) {
      int8_t four[4];
      for (int k = 0; k < 4; ++k) four[k] = (int8_t)l.weight[f * inputs + 4 * g + k];
      int32_t values;
      memcpy(&values, four, 4);
      if (values) l.groups.push_back({(int32_t)(g * l.plane * 4), values});
    }
    l.starts.push_back(l.entries.size());
    l.group_starts.push_back(l.groups.size());
  }
  l.packed.resize(inputs * outputs);
  for (int64_t f = 0; f < outputs; ++f)
    for (int64_t c = 0; c < inputs; ++c)
      l.packed[(f / BUNDLE * inputs + c) * BUNDLE + f % BUNDLE] = l.weight[f * inputs + c];
  const double list = std::min({seconds(l, lists<4>), seconds(l, lists<8>), seconds(l, lists<12>), seconds(l, lists<24>)});
  const double group = std::min({seconds(l, groups<4>), seconds(l, groups<8>), seconds(l, groups<12>), seconds(l, groups<24>)});
  printf("{\"inputs\": %ld, \"outputs\": %ld, \"positions\": %ld, \"density\": %g, \"full_groups\": %.3f, ", (long)inputs,
         (long)outputs, (long)positions, density, l.groups.size() / (inputs * outputs / 4.0));
  printf("\"fp32_lists\": %.4g, \"fp32_bundles\": %.4g, \"int8_groups\": %.4g, \"rounding\": %.4g}\n", list,
         seconds(l, bundles), group, seconds(l, round_inputs));
  fflush(stdout);
  free(l.x);
  free(l.y);
  free(l.x8);
}

}  // namespace

int main() {
  const int64_t sizes[][2] = {{256, 256}, {256, 1024}, {1024, 256}};
  for (const auto& size : sizes)
    for (const double density : {0.02, 0.05, 0.1, 0.2, 1.0}) measure(size[0], size[1], 768, density);
}
