// The boundary between the planner (plan.py) and the kernels: a table of operations over one arena.
//
// The planner decides everything: where each value lies, which tiles an operation is cut into, which
// weights it reads in which order. The native side walks the table and checks nothing, so a plan must
// only ever come from `plan.py`, of a graph that was validated.
//
// An arena holds `lanes` images at a time, lane after lane at each position. With as many as a vector
// has elements, a vector is one position of all images; with less (1, 2, 4, ...) it runs along the
// positions of a plane, several at a time. Offsets and distances count floats.
#pragma once
#include <stdint.h>

// Element (c, y, x) of a value is at offset + c*plane + y*pitch + x*lanes. Around the elements are
// zeros, the padding of what reads it: `lead` before the first plane, pitch - width*lanes behind each
// row (they serve the next row as well), `tail` behind each plane (they serve the next plane).
// Whoever writes a value writes these zeros.
struct Value {
  int64_t offset, plane, pitch, lead, tail, channels, height, width;
};

// One kept weight: where its input is, seen from the first output position, and its value.
struct Entry {
  int32_t offset;
  float value;
};

enum Kind : int64_t {
  LOAD, STORE, CONV, LINEAR, DENSE, COPY, MAX_POOL, AVG_POOL, ADD, MULTIPLY, AFFINE, ACTIVATION, SOFTMAX,
  KINDS
};

enum Activation : int64_t {
  CLAMP, LEAKY_RELU, ELU, SIGMOID, TANH, SILU, HARDSWISH, HARDSIGMOID, GELU, GELU_TANH
};

// `items` pieces of work that may be done in any order and by any thread, all of them before the
// next operation. Threads that share a chunk take `parts` of them, each of items that follow each
// other: neighbours in the plane where that is large, so that a thread finds what it reads in its own
// cache. An item that is a channel is one of `bands` of its rows: item = band * channels + channel.
// `p` by kind (`ints`, `floats`, `entries`: where its constants begin in the pools):
//   LOAD, STORE   item: channel
//   CONV          item: block of filters * p[0] + tile. p: 0 tiles, 1 blocks, 2 input distance of two
//                 rows of a tile, 3 of two columns, 4 mask of a plane in ints or -1, 5 whether
//                 `floats` has a plane for each filter, 6 size of such a plane, 7 distance of its rows;
//                 ints: start of each filter's entries (channels + 1), first filter of each block
//                 (p[1] + 1), tiles (rows, columns, offsets in input, output, b, plane);
//                 floats: bias, planes. b: added if b.offset >= 0. Then clamped to low, high.
//   LINEAR        item: block of filters. p: 1 blocks; ints as CONV without tiles; floats: bias; one image
//   DENSE         as LINEAR, but floats: bias, then the matrix, row by row; no entries; one image
//   COPY          item: channel. out(y, x) = a(p0 + y*p1, p2 + x*p3), zero outside of a
//   MAX_POOL, AVG_POOL  item: channel. p: 0 step of rows, 1 step of columns within a window,
//                 2 first and 3 past last output column with a whole window, 4 stride and 5 columns of these;
//                 ints: first row, past last row of each window (2*height), the same of columns;
//                 floats of AVG_POOL: factor by row (height), by column (width)
//   ADD, MULTIPLY item: channel. p: 0 whether b has one value for a channel
//   AFFINE        item: channel. floats: scale, shift
//   ACTIVATION    item: channel. p: 0 Activation; low, high: bounds of CLAMP, or low: slope
//   SOFTMAX       item: all. p: 0 whether the logarithm
struct Operation {
  int64_t kind, items, parts, bands;
  Value a, b, out;
  int64_t p[8];
  int64_t ints, floats, entries;
  double low, high;
};

struct Plan {
  int64_t isa, lanes, count, arena;
  int64_t input_size, output_size;  // of one image, for LOAD and STORE
  const Operation* operations;
  const int32_t* ints;
  const float* floats;
  const Entry* entries;
};

// What a kernel sees of the chunk of images that it works on.
struct Chunk {
  const Plan* plan;
  float* arena;
  const float* x;
  float* y;
  int64_t images;  // at most plan->lanes
};

typedef void (*Kernel)(const Operation&, const Chunk&, int64_t item);
