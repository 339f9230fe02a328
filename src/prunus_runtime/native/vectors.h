// Vectors of LANES floats in the compiler's own notation, and what all kernels share. Included by
// kernels.cpp alone, inside its anonymous namespace.
#pragma once

typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef float Loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(LANES * 4)));
typedef int32_t LooseBits __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline Vector load(const float* p) { return *(const Loose*)p; }
inline void store(float* p, Vector v) { *(Loose*)p = v; }
inline Vector splat(float x) { return x - Vector{}; }
// These two keep what is not a number.
inline Vector at_least(Vector v, Vector low) { return low > v ? low : v; }
inline Vector at_most(Vector v, Vector high) { return high < v ? high : v; }

// Every second element of 2 * LANES.
inline Vector load_even(const float* p) {
#ifdef __clang__
  Vector even;
  for (int i = 0; i < LANES; ++i) even[i] = p[2 * i];
  return even;
#else
  Bits even;
  for (int i = 0; i < LANES; ++i) even[i] = 2 * i;
  return __builtin_shuffle(load(p), load(p + LANES), even);
#endif
}

// Less than a vector: N floats.
template <int N>
struct Some {
  typedef float Type __attribute__((vector_size(N * 4), aligned(4), may_alias));
};
template <>
struct Some<1> {
  typedef float Type;
};

// Calls `function` with the number of lanes as a constant, so that loops over them become vectors.
template <int N>
struct Constant {
  static constexpr int value = N;
};
template <int N, class Function>
inline void with_lanes(int64_t lanes, Function function) {
  if (lanes == N) return function(Constant<N>());
  if constexpr (N > 1) with_lanes<N / 2>(lanes, function);
}

// As many elements as there are, at most `count`.
inline void store_upto(float* p, Vector v, int64_t count) {
  if (count >= LANES) return store(p, v);
  float all[LANES];
  store(all, v);
  for (int64_t i = 0; i < count; ++i) p[i] = all[i];
}

inline float* plane_of(const Place& v, const Chunk& chunk, int64_t c) {
  return chunk.arena + v.offset + c * v.plane;
}

template <int N>
inline void clear_rest(float* p, int64_t count) {
  if (count & N) {
    *(typename Some<N>::Type*)p = typename Some<N>::Type{};
    p += N;
  }
  if constexpr (N > 1) clear_rest<N / 2>(p, count);
}

// Mostly a few floats: less than what a call of memset costs.
inline void clear(float* p, int64_t count) {
  for (; count >= LANES; count -= LANES, p += LANES) store(p, Vector{});
  if (count > 0) clear_rest<LANES / 2>(p, count);
}

// The zeros before the first plane, and those behind the first `body` floats of a plane.
void clear_ends(const Place& v, const Chunk& chunk, int64_t c, int64_t body) {
  float* plane = plane_of(v, chunk, c);
  if (c == 0) clear(plane - v.lead, v.lead);
  clear(plane + body, v.height * v.pitch + v.tail - body);
}

// Those of rows [begin, end), and both ends of the plane with its first row.
void clear_margins(const Place& v, const Chunk& chunk, int64_t c, int64_t begin, int64_t end) {
  if (begin == 0) clear_ends(v, chunk, c, v.height * v.pitch);
  float* plane = plane_of(v, chunk, c);
  const int64_t used = v.width * chunk.program->lanes;
  if (v.pitch > used)
    for (int64_t y = begin; y < end; ++y) clear(plane + y * v.pitch + used, v.pitch - used);
}

// What an item is where it is not of a convolution: rows [begin, end) of a channel.
struct Band {
  int64_t c, begin, end;
};

inline Band band_of(const Instruction& op, const Place& v, int64_t item) {
  const int64_t band = item / v.channels;
  return {item % v.channels, v.height * band / op.bands, v.height * (band + 1) / op.bands};
}

// Calls `function` with the number of vectors that hold `count` floats, at most MOST_AT_ONCE, as a constant.
template <int MOST_AT_ONCE, class Function>
inline void with_vectors(int64_t count, Function function) {
  if constexpr (MOST_AT_ONCE > 1)
    if (count <= (MOST_AT_ONCE - 1) * LANES) return with_vectors<MOST_AT_ONCE - 1>(count, function);
  function(Constant<MOST_AT_ONCE>());
}

// N floats, again and again: one position of all lanes, for each of the positions in a vector.
template <int... I>
struct Numbers {};
template <int COUNT, int... I>
struct Below : Below<COUNT - 1, COUNT - 1, I...> {};
template <int... I>
struct Below<0, I...> {
  typedef Numbers<I...> Type;
};
template <int N, int... I>
inline auto doubled(typename Some<N>::Type part, Numbers<I...>) {
  return __builtin_shufflevector(part, part, (I % N)...);
}
// Step by step: what is less than half of a vector the compiler would put together element by element.
template <int N>
inline Vector repeated(typename Some<N>::Type part) {
  if constexpr (N == LANES) return part;
  else return repeated<2 * N>(doubled<N>(part, typename Below<2 * N>::Type()));
}
template <int N>
inline Vector repeat(const float* p) {
  if constexpr (N == 1) return splat(*p);
  else if constexpr (N == LANES) return load(p);
  else return repeated<N>(*(const typename Some<N>::Type*)p);
}

// A sum with it is rounded to an integer, in its last bits.
constexpr float MAGIC = 12582912.0f;

// e to the power of v, within 2e-7 of its value; zero where that is too small for a float.
inline Vector exponential(Vector v) {
  const Vector magic = splat(MAGIC);
  const Vector x = at_most(at_least(v, splat(-87.0f)), splat(88.3f));
  const Vector rounded = x * splat(1.44269504f) + magic, n = rounded - magic;
  const Vector r = (x - n * splat(0.693359375f)) + n * splat(2.12194440e-4f);
  Vector series = splat(1.9875691500e-4f);
  const float terms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
#pragma GCC unroll 8
  for (float term : terms) series = series * r + splat(term);
  const Vector power = (Vector)(((Bits)rounded << 23) + (127 << 23));
  return v < splat(-87.0f) ? Vector{} : (series * r * r + r + splat(1.0f)) * power;
}

// A shorter sequence than the longest uses the first positions of each row.
inline int64_t used_width(const Place& v, const Chunk& chunk) {
  return v.width < chunk.length ? v.width : chunk.length;
}
