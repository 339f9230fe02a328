// Kernels of transformers. Positions lie along the vectors and channels are planes apart, so what is
// computed over channels or keys needs no sums within a vector. Included by kernels.cpp alone.
#pragma once

// ---------------------------------------------------------------------------------------------
// Over the channels of each position: an item is a strip, at most STRIP vectors of a row

struct Strip {
  int64_t y, begin, count;
};

inline Strip strip_of(const Place& v, const Chunk& chunk, int64_t item) {
  const int64_t lanes = chunk.program->lanes, size = STRIP * LANES;
  const int64_t strips = (v.width * lanes + size - 1) / size;
  const int64_t begin = item % strips * size, left = used_width(v, chunk) * lanes - begin;
  return {item / strips, begin, left < size ? left : size};
}

// Calls `function` with the first input and output of the strip, and its number of vectors.
template <class Function>
void over_strip(const Instruction& op, const Chunk& chunk, int64_t item, Function function) {
  const auto [y, begin, count] = strip_of(op.out, chunk, item);
  if (item == 0)
    for (int64_t c = 0; c < op.out.channels; ++c) clear_margins(op.out, chunk, c, 0, op.out.height);
  if (count <= 0) return;
  const float* in = chunk.arena + op.a.offset + y * op.a.pitch + begin;
  float* out = chunk.arena + op.out.offset + y * op.out.pitch + begin;
  with_vectors<STRIP>(count, [&, count = count](auto n) { function(in, out, count, n); });
}

inline Vector square_root(Vector v) {
  for (int i = 0; i < LANES; ++i) v[i] = sqrtf(v[i]);
  return v;
}

void norm(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int64_t channels = op.out.channels;
  const float* scale = chunk.program->floats + op.floats;
  const float* shift = scale + channels;
  over_strip(op, chunk, item, [&](const float* in, float* out, int64_t count, auto n) {
    constexpr int N = n.value;
    const Vector share = splat(1.0f / (float)channels);
    Vector mean[N] = {}, factor[N] = {};
    if (op.option) {
      for (int64_t c = 0; c < channels; ++c)
        for (int i = 0; i < N; ++i) mean[i] += load(in + c * op.a.plane + i * LANES);
      for (int i = 0; i < N; ++i) mean[i] *= share;
    }
    for (int64_t c = 0; c < channels; ++c)
      for (int i = 0; i < N; ++i) {
        const Vector v = load(in + c * op.a.plane + i * LANES) - mean[i];
        factor[i] += v * v;
      }
    for (int i = 0; i < N; ++i)
      factor[i] = splat(1.0f) / square_root(factor[i] * share + splat((float)op.number));
    for (int64_t c = 0; c < channels; ++c)
      for (int i = 0; i < N; ++i) {
        const Vector v = (load(in + c * op.a.plane + i * LANES) - mean[i]) * factor[i];
        store_upto(out + c * op.out.plane + i * LANES, v * splat(scale[c]) + splat(shift[c]), count - i * LANES);
      }
  });
}

void softmax(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int64_t channels = op.out.channels;
  over_strip(op, chunk, item, [&](const float* in, float* out, int64_t count, auto n) {
    constexpr int N = n.value;
    for (int i = 0; i < N; ++i) {
      Vector most = splat(-INFINITY), sum = {};
      for (int64_t c = 0; c < channels; ++c) most = at_least(load(in + c * op.a.plane + i * LANES), most);
      for (int64_t c = 0; c < channels; ++c) sum += exponential(load(in + c * op.a.plane + i * LANES) - most);
      Vector shift = most, factor = splat(1.0f) / sum;
      if (op.option)
        for (int l = 0; l < LANES; ++l) shift[l] += logf(sum[l]);
      for (int64_t c = 0; c < channels; ++c) {
        const Vector v = load(in + c * op.a.plane + i * LANES) - shift;
        store_upto(out + c * op.out.plane + i * LANES, op.option ? v : exponential(v) * factor, count - i * LANES);
      }
    }
  });
}

// ---------------------------------------------------------------------------------------------
// Attention

constexpr int KEYS = 64;                           // at a time
constexpr int ROWS = MOST >= 12 ? MOST / 3 : 2;    // of a product, whose sums stay in registers

// sum[r] += factors(r, i) * vectors(i) over i < depth, for R rows of N lanes that are `row` apart.
// Factors of neighbouring i are `factor_step` apart, vectors `vector_step`.
template <int N, int V, int R>
inline void multiply_rows(Vector (*sum)[V], const float* factors, int64_t row, int64_t factor_step,
                          const float* vectors, int64_t vector_step, int64_t depth) {
  for (int64_t i = 0; i < depth; ++i, factors += factor_step, vectors += vector_step) {
    Vector v[V];
#pragma GCC unroll 4
    for (int j = 0; j < V; ++j) v[j] = load(vectors + j * LANES);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vector factor = repeat<N>(factors + r * row);
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) sum[r][j] += factor * v[j];
    }
  }
}

// Calls `function(first row, number of rows as a constant)` for all rows.
template <class Function>
inline void by_rows(int64_t count, Function function) {
  int64_t r = 0;
  for (; r + ROWS <= count; r += ROWS) function(r, Constant<ROWS>());
  for (; r < count; ++r) function(r, Constant<1>());
}

// One head at V vectors of queries, from element `begin` of the row on. Keys are taken a block at a
// time; what was summed before is scaled down when a block has a larger score than all before.
template <int N, int V>
void attend(const Instruction& op, const Chunk& chunk, int64_t head, int64_t begin, int64_t count) {
  const AttentionParameters& p = op.parameters.attention;
  const int64_t depth = op.a.channels / p.heads, width = op.out.channels / p.heads;
  const float* query = plane_of(op.a, chunk, head * depth) + begin;
  const float* key = plane_of(op.b, chunk, head * depth);
  const float* value = chunk.arena + p.value + head * width * p.value_plane;
  const float* mask = p.mask >= 0 ? chunk.arena + p.mask : nullptr;
  float* out = plane_of(op.out, chunk, head * width) + begin;
  int64_t keys = used_width(op.b, chunk);
  if (p.causal && (begin + count - 1) / N + 1 < keys) keys = (begin + count - 1) / N + 1;
  Vector position[V], most[V], total[V] = {};  // position: of each query, as a float
  for (int j = 0; j < V; ++j) {
    for (int l = 0; l < LANES; ++l) position[j][l] = (float)((begin + j * LANES + l) / N);
    most[j] = splat(-INFINITY);
  }
  float scores[KEYS * V * LANES];
  for (int64_t first = 0; first < keys; first += KEYS) {
    const int64_t n = keys - first < KEYS ? keys - first : KEYS;
    Vector before[V];
    for (int j = 0; j < V; ++j) before[j] = most[j];
    by_rows(n, [&](int64_t k, auto rows) {
      Vector sum[rows.value][V] = {};
      multiply_rows<N, V, rows.value>(sum, key + (first + k) * N, N, op.b.plane, query, op.a.plane, depth);
      for (int r = 0; r < rows.value; ++r)
        for (int j = 0; j < V; ++j) {
          Vector score = sum[r][j] * splat((float)op.number);
          if (mask) score += repeat<N>(mask + (first + k + r) * N);
          if (p.causal) score = splat((float)(first + k + r)) > position[j] ? splat(-INFINITY) : score;
          most[j] = at_least(score, most[j]);
          store(scores + ((k + r) * V + j) * LANES, score);
        }
    });
    Vector kept[V];
    for (int j = 0; j < V; ++j) {
      kept[j] = exponential(before[j] - most[j]);
      total[j] *= kept[j];
    }
    for (int64_t k = 0; k < n; ++k)
      for (int j = 0; j < V; ++j) {
        float* score = scores + (k * V + j) * LANES;
        const Vector weight = exponential(load(score) - most[j]);
        total[j] += weight;
        store(score, weight);
      }
    const bool last = first + n == keys;
    by_rows(width, [&](int64_t c, auto rows) {
      Vector sum[rows.value][V] = {};
      multiply_rows<N, V, rows.value>(sum, value + c * p.value_plane + first * N, p.value_plane, N, scores, V * LANES, n);
      for (int r = 0; r < rows.value; ++r)
        for (int j = 0; j < V; ++j) {
          float* at = out + (c + r) * op.out.plane + j * LANES;
          Vector v = sum[r][j];
          if (first) v += load(at) * kept[j];
          store_upto(at, last ? v / total[j] : v, count - j * LANES);
        }
    });
  }
}

void attention(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int64_t tiles = op.parameters.attention.tiles, lanes = chunk.program->lanes;
  const int64_t head = item / tiles, begin = item % tiles * QUERIES * LANES;
  if (item == 0)
    for (int64_t c = 0; c < op.out.channels; ++c) clear_margins(op.out, chunk, c, 0, 1);
  const int64_t left = used_width(op.out, chunk) * lanes - begin;
  const int64_t count = left < QUERIES * LANES ? left : QUERIES * LANES;
  if (count <= 0) return;
  with_lanes<LANES>(lanes, [&](auto n) {
    with_vectors<QUERIES>(count, [&](auto v) { attend<n.value, v.value>(op, chunk, head, begin, count); });
  });
}

// ---------------------------------------------------------------------------------------------
// In and out of rows of positions

// An item is a vector of the output's positions. Numbers that are no row of the table stand for the
// nearest that is: no input, whatever it is, reads outside.
void embedding(const Instruction& op, const Chunk& chunk, int64_t item) {
  const EmbeddingParameters& p = op.parameters.embedding;
  const int64_t lanes = chunk.program->lanes, begin = item * LANES;
  const int64_t left = used_width(op.out, chunk) * lanes - begin, count = left < LANES ? left : LANES;
  const float* rows[LANES];
  for (int64_t i = 0; i < LANES; ++i) {
    const int64_t at = begin + (i < count ? i : 0);
    const float number = count > 0 ? plane_of(op.a, chunk, at / lanes)[at % lanes] : 0;
    const int64_t row = number > 0 ? (number < (float)(p.rows - 1) ? (int64_t)number : p.rows - 1) : 0;
    rows[i] = (const float*)p.table + row * op.out.channels;
  }
  for (int64_t c = 0; c < op.out.channels; ++c) {
    Vector v;
    for (int i = 0; i < LANES; ++i) v[i] = rows[i][c];
    store_upto(plane_of(op.out, chunk, c) + begin, v, count);
    if (item == 0) clear_margins(op.out, chunk, c, 0, 1);
  }
}

// An item is some of the output's channels, which are the input's columns.
void transpose(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int64_t channels = used_width(op.a, chunk);
  const int64_t first = op.out.channels * item / op.items;
  int64_t last = op.out.channels * (item + 1) / op.items;
  if (last > channels) last = channels;
  with_lanes<LANES>(chunk.program->lanes, [&](auto n) {
    typedef typename Some<n.value>::Type Position;
    for (int64_t x = 0; x < op.out.width; ++x) {
      const float* in = plane_of(op.a, chunk, x);
      float* out = chunk.arena + op.out.offset + x * n.value;
      for (int64_t c = first; c < last; ++c)
        *(Position*)(out + c * op.out.plane) = *(const Position*)(in + c * n.value);
    }
  });
  for (int64_t c = first; c < last; ++c) clear_margins(op.out, chunk, c, 0, 1);
}

void mean(const Instruction& op, const Chunk& chunk, int64_t item) {
  const int64_t count = used_width(op.a, chunk);
  const float* in = plane_of(op.a, chunk, item);
  with_lanes<LANES>(chunk.program->lanes, [&](auto n) {
    typedef typename Some<n.value>::Type Position;
    Position sums[4] = {};
    for (int64_t x = 0; x < count; ++x) sums[x % 4] += *(const Position*)(in + x * n.value);
    const Position sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    *(Position*)plane_of(op.out, chunk, item) = sum / (float)count;
  });
  clear_margins(op.out, chunk, item, 0, 1);
}
