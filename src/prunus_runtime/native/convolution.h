// Layers at many positions: lists of kept weights, of single filters or of bundles of them. Included by
// kernels.cpp alone, inside its anonymous namespace.
#pragma once

// Filters that share a list, if they do: so many that their sums at BUNDLED vectors fill the registers.
constexpr int BUNDLE = MOST / BUNDLED;

inline float bounded(const Instruction& op, float v) {
  if (v < (float)op.low) v = (float)op.low;
  if (v > (float)op.high) v = (float)op.high;
  return v;
}

// How sums are taken. Floats: of inputs and weights in float32; a vector is of positions.
struct Floats {
  typedef Vector Sum;
  static constexpr int WEIGHT = 1, POSITION = LANES;  // floats of a weight, and from input to input
  static Sum begin(const Instruction& op, const Program& program, int64_t f) { return splat(program.floats[op.floats + f]); }
  static Vector end(const Instruction&, const Program&, int64_t, Sum sum) { return sum; }
  static Sum weight(const float* w) { return splat(*w); }
  static void add(Sum& sum, Vector weight, const float* from) { sum += weight * load(from); }
};

#ifdef __AVX512F__
// Four inputs of eight bits without a sign lie where Floats has one, and four weights with a sign. The
// compiler gets no flag for VNNI, because not every processor with AVX-512 has it: the planner knows.
struct Bytes {
  typedef Bits Sum;
  static constexpr int WEIGHT = 1, POSITION = LANES;
  static Sum begin(const Instruction& op, const Program& program, int64_t f) {
    return program.ints[op.parameters.conv.corrections + f] - Bits{};
  }
  static Vector end(const Instruction& op, const Program& program, int64_t f, Sum sum) {
    const float scale = program.floats[op.parameters.conv.scales + f], bias = program.floats[op.floats + f];
    return __builtin_convertvector(sum, Vector) * splat(scale) + splat(bias);
  }
  static Sum weight(const float* w) { return *(const int32_t __attribute__((may_alias))*)w - Bits{}; }
  static void add(Sum& sum, Bits weight, const float* from) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(*(const LooseBits*)from), "v"(weight));
  }
};
#endif

// A vector is of filters, at one position: it wastes nothing where planes are smaller than a vector.
struct Filters {
  typedef Vector Sum;
  static constexpr int WEIGHT = LANES, POSITION = 1;
  static Sum weight(const float* w) { return load(w); }
  static void add(Sum& sum, Vector weight, const float* from) { sum += weight * splat(*from); }
};

// Calls `add(item, sums)` for each of [item, end). A sum is ready for its next product after some cycles
// only; where they are few, several stand for each, so that there is always one that is ready.
template <int SUMS, class Sum, class Item, class Add>
__attribute__((always_inline)) inline void walk(Item item, Item end, Sum* sums, const Add& add) {
  constexpr int WAYS = SUMS >= 6 ? 1 : SUMS >= 3 ? 2 : 4;
  if (WAYS > 1 && end - item >= WAYS) {
    Sum more[WAYS][SUMS];
#pragma GCC unroll 32
    for (int k = 0; k < WAYS * SUMS; ++k) more[k / SUMS][k % SUMS] = Sum{};
    for (; end - item >= WAYS; item += WAYS)
#pragma GCC unroll 4
      for (int w = 0; w < WAYS; ++w) add(item + w, more[w]);
#pragma GCC unroll 32
    for (int k = 0; k < WAYS * SUMS; ++k) sums[k % SUMS] += more[k / SUMS][k % SUMS];
  }
  for (; item != end; ++item) add(item, sums);
}

// Adds the products of a bundle's list, [begin, end) of `offsets` and `weights`, to the sums of its filters
// at ROWS x COLUMNS vectors of positions. In a function of its own, where the compiler has all registers
// for it: what that costs is little beside the long lists of bundles.
template <class Way, int FILTERS, int ROWS, int COLUMNS, int STEP>
__attribute__((noinline)) void walk_bundle(const int32_t* offsets, const float* weights, int64_t begin, int64_t end,
                                           const ConvParameters& p, const float* in, typename Way::Sum* sums) {
  typedef typename Way::Sum Sum;
  constexpr int SIZE = ROWS * COLUMNS, SUMS = FILTERS * SIZE;
  const int64_t row = p.row, column = STEP ? STEP * Way::POSITION : p.column;
  Sum own[SUMS];
#pragma GCC unroll 32
  for (int k = 0; k < SUMS; ++k) own[k] = sums[k];
  walk<SUMS>(begin, end, own, [&](int64_t i, Sum* into) __attribute__((always_inline)) {
    const float* values = weights + i * FILTERS * Way::WEIGHT;
    const float* from = in + offsets[i];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r, from += row) {
      asm("" : "+r"(from));  // one address for each row: the compiler would compute one for each vector
#pragma GCC unroll 32
      for (int k = 0; k < FILTERS * COLUMNS; ++k) {
        // The compiler keeps what all turns of the inner index load, and few registers are left: so that is few.
        constexpr bool INPUT_FIRST = Way::POSITION == 1;
        const int g = INPUT_FIRST ? k % FILTERS : k / COLUMNS, c = INPUT_FIRST ? k / FILTERS : k % COLUMNS;
        Way::add(into[g * SIZE + r * COLUMNS + c], Way::weight(values + g * Way::WEIGHT), from + c * column);
      }
    }
  });
#pragma GCC unroll 32
  for (int k = 0; k < SUMS; ++k) sums[k] = own[k];
}

// Output of lists [first, last) at ROWS x COLUMNS vectors of positions. The sums stay in registers while
// a list is walked. One filter's list has its kept weights. That of a bundle (FILTERS > 1) has all inputs
// that any of them reads, and there a weight of each: zeros cost time, but what was loaded serves them all.
template <class Way, int FILTERS, int ROWS, int COLUMNS, int STEP>
void convolve(const Instruction& op, const Chunk& chunk, const Tile& tile, int64_t first, int64_t last) {
  typedef typename Way::Sum Sum;
  constexpr int SIZE = ROWS * COLUMNS, SUMS = FILTERS * SIZE;
  const ConvParameters& p = op.parameters.conv;
  const Program& program = *chunk.program;
  const int32_t* starts = program.ints + op.ints;
  const float* bias = program.floats + op.floats;
  const float* planes = p.has_planes ? bias + op.out.channels + tile.plane : nullptr;
  const int32_t* mask = p.mask >= 0 ? program.ints + p.mask + tile.output : nullptr;
  const float* in = chunk.arena + op.a.offset + tile.input;
  const bool residual = op.b.offset >= 0, bounded_below = op.low > -INFINITY, bounded_above = op.high < INFINITY;
  const Vector low = splat((float)op.low), high = splat((float)op.high);
  const int64_t row = p.row, column = STEP ? STEP * LANES : p.column;
  const Entry* entries = program.entries + op.entries;

  for (int64_t number = first; number < last; ++number) {
    Sum sums[SUMS];
#pragma GCC unroll 32
    for (int k = 0; k < SUMS; ++k) {
      const int64_t f = number * FILTERS + k / SIZE;
      sums[k] = FILTERS == 1 || f < op.out.channels ? Way::begin(op, program, f) : Sum{};
    }
    if constexpr (FILTERS == 1) {
      walk<SIZE>(entries + starts[number], entries + starts[number + 1], sums,
                 [&](const Entry* entry, Sum* into) __attribute__((always_inline)) {
                   const Sum value = Way::weight(&entry->value);
                   const float* from = in + entry->offset;
#pragma GCC unroll 32
                   for (int k = 0; k < SIZE; ++k)
                     Way::add(into[k], value, from + k / COLUMNS * row + k % COLUMNS * column);
                 });
    } else {
      walk_bundle<Way, FILTERS, ROWS, COLUMNS, STEP>(program.ints + p.offsets, program.floats + p.weights,
                                                starts[number], starts[number + 1], p, in, sums);
    }
#pragma GCC unroll 8
    for (int g = 0; g < FILTERS; ++g) {
      const int64_t f = number * FILTERS + g;
      if (FILTERS > 1 && f == op.out.channels) break;
      Vector sum[SIZE];
#pragma GCC unroll 32
      for (int i = 0; i < SIZE; ++i) sum[i] = Way::end(op, program, f, sums[g * SIZE + i]);
      if (planes) {
        const float* plane = planes + f * p.plane;
#pragma GCC unroll 32
        for (int i = 0; i < SIZE; ++i) {
          const int r = i / COLUMNS, c = i % COLUMNS;
          sum[i] += program.lanes < LANES ? load(plane + c * LANES) : splat(plane[r * p.plane_row + c]);
        }
      }
      if (residual) {
        const float* b = plane_of(op.b, chunk, f) + tile.residual;
#pragma GCC unroll 32
        for (int i = 0; i < SIZE; ++i) sum[i] += load(b + i / COLUMNS * op.b.pitch + i % COLUMNS * LANES);
      }
      if (bounded_below)
#pragma GCC unroll 32
        for (int i = 0; i < SIZE; ++i) sum[i] = at_least(sum[i], low);
      if (bounded_above)
#pragma GCC unroll 32
        for (int i = 0; i < SIZE; ++i) sum[i] = at_most(sum[i], high);
      if (mask)
#pragma GCC unroll 32
        for (int i = 0; i < SIZE; ++i) sum[i] = (Vector)((Bits)sum[i] & *(const LooseBits*)(mask + i * LANES));
      float* out = plane_of(op.out, chunk, f) + tile.output;
#pragma GCC unroll 32
      for (int i = 0; i < SIZE; ++i) store(out + i / COLUMNS * op.out.pitch + i % COLUMNS * LANES, sum[i]);
    }
  }
}

// The same with vectors of filters, whose sums are turned around on the way to the planes.
template <int ROWS, int COLUMNS>
void convolve_filters(const Instruction& op, const Chunk& chunk, const Tile& tile, int64_t first, int64_t last) {
  constexpr int SIZE = ROWS * COLUMNS;
  const ConvParameters& p = op.parameters.conv;
  const Program& program = *chunk.program;
  const int32_t* starts = program.ints + op.ints;
  const float* bias = program.floats + op.floats;
  const float* planes = p.has_planes ? bias + op.out.channels + tile.plane : nullptr;
  const float* in = chunk.arena + op.a.offset + tile.input;
  const float low = (float)op.low, high = (float)op.high;
  for (int64_t number = first; number < last; ++number) {
    Vector sums[FILTER_VECTORS * SIZE] = {};
    walk_bundle<Filters, FILTER_VECTORS, ROWS, COLUMNS, 1>(program.ints + p.offsets, program.floats + p.weights,
                                                           starts[number], starts[number + 1], p, in, sums);
    for (int k = 0; k < FILTER_VECTORS * LANES; ++k) {
      const int64_t f = number * FILTER_VECTORS * LANES + k;
      if (f == op.out.channels) break;
      const float* sum = (const float*)(sums + k / LANES * SIZE) + k % LANES;
      float values[SIZE];
#pragma GCC unroll 32
      for (int i = 0; i < SIZE; ++i) values[i] = sum[i * LANES] + bias[f];
      if (planes)
        for (int i = 0; i < SIZE; ++i) values[i] += planes[f * p.plane + i / COLUMNS * p.plane_row + i % COLUMNS];
      if (op.b.offset >= 0) {
        const float* b = plane_of(op.b, chunk, f) + tile.residual;
#pragma GCC unroll 32
        for (int i = 0; i < SIZE; ++i) values[i] += b[i / COLUMNS * op.b.pitch + i % COLUMNS];
      }
      float* out = plane_of(op.out, chunk, f) + tile.output;
#pragma GCC unroll 32
      for (int i = 0; i < SIZE; ++i) {
        const float v = values[i] < low ? low : values[i];
        out[i / COLUMNS * op.out.pitch + i % COLUMNS] = v > high ? high : v;
      }
    }
  }
}

typedef void (*Convolve)(const Instruction&, const Chunk&, const Tile&, int64_t, int64_t);

// The convolution for a tile of 1, 2 or 4 rows whose vectors are at most MOST / FILTERS.
template <class Way, int FILTERS, int STEP, int ROWS, int COLUMNS>
struct Choice {
  static Convolve of(int64_t columns) {
    return columns == COLUMNS ? convolve<Way, FILTERS, ROWS, COLUMNS, STEP>
                              : Choice<Way, FILTERS, STEP, ROWS, COLUMNS - 1>::of(columns);
  }
};
template <class Way, int FILTERS, int STEP, int ROWS>
struct Choice<Way, FILTERS, STEP, ROWS, 0> {
  static Convolve of(int64_t) { return nullptr; }
};

template <class Way, int FILTERS, int STEP>
Convolve choose(const Tile& tile) {
  constexpr int VECTORS = MOST / FILTERS;
  switch (tile.rows) {
    case 1: return Choice<Way, FILTERS, STEP, 1, VECTORS>::of(tile.columns);
    case 2: return Choice<Way, FILTERS, STEP, 2, VECTORS / 2>::of(tile.columns);
    default: return Choice<Way, FILTERS, STEP, 4, VECTORS / 4>::of(tile.columns);
  }
}

// Those of vectors of filters.
template <int ROWS, int COLUMNS>
Convolve of_filters(int64_t columns) {
  if constexpr (COLUMNS == 0) return nullptr;
  else return columns == COLUMNS ? convolve_filters<ROWS, COLUMNS> : of_filters<ROWS, COLUMNS - 1>(columns);
}

inline Convolve choose_filters(const Tile& tile) {
  constexpr int VECTORS = MOST / FILTER_VECTORS;
  switch (tile.rows) {
    case 1: return of_filters<1, VECTORS>(tile.columns);
    case 2: return of_filters<2, VECTORS / 2>(tile.columns);
    default: return of_filters<4, VECTORS / 4>(tile.columns);
  }
}

template <class Way, int FILTERS>
Convolve choose(const ConvParameters& p, const Tile& tile) {
  return p.column == LANES       ? choose<Way, FILTERS, 1>(tile)
         : p.column == 2 * LANES ? choose<Way, FILTERS, 2>(tile)
                                 : choose<Way, FILTERS, 0>(tile);
}

template <class Way>
Convolve choose(const ConvParameters& p, const Tile& tile) {
  return p.bundle == 1 ? choose<Way, 1>(p, tile) : choose<Way, BUNDLE>(p, tile);
}

void conv(const Instruction& op, const Chunk& chunk, int64_t item) {
  const ConvParameters& p = op.parameters.conv;
  const int64_t channels = op.out.channels, lists = (channels + p.bundle - 1) / p.bundle;
  const int32_t* blocks = chunk.program->ints + op.ints + lists + 1;
  const Tile* tiles = (const Tile*)(blocks + p.blocks + 1);
  const Tile& tile = tiles[item % p.tiles];
  const int64_t first = blocks[item / p.tiles], last = blocks[item / p.tiles + 1];
  const int64_t begin = first * p.bundle, end = last < lists ? last * p.bundle : channels;
  if (tile.output >= chunk.length * chunk.program->lanes && op.out.height == 1) return;
  const bool by_filters = p.bundle == FILTER_VECTORS * LANES;
  if (chunk.program->lanes < LANES && !by_filters) {
    // The last vector of a plane writes zeros behind its rows by itself.
    const int64_t body = (op.out.height * op.out.pitch + LANES - 1) / LANES * LANES;
    if (tile.output == 0)
      for (int64_t f = begin; f < end; ++f) clear_ends(op.out, chunk, f, body);
  } else if (tile.output % op.out.pitch == 0) {
    const int64_t y = tile.output / op.out.pitch;
    for (int64_t f = begin; f < end; ++f) clear_margins(op.out, chunk, f, y, y + tile.rows);
  }
  if (by_filters) return choose_filters(tile)(op, chunk, tile, first, last);
#ifdef __AVX512F__
  if (p.scales >= 0) return choose<Bytes>(p, tile)(op, chunk, tile, first, last);
#endif
  choose<Floats>(p, tile)(op, chunk, tile, first, last);
}
