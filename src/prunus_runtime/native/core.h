// What the threads (runtime.cpp) and the kernels (kernels.cpp) share. The structures of a program
// are declared in interface.py, from which the build makes interface.h.
#pragma once
#include "interface.h"

// What a kernel sees of the chunk of images that it works on.
struct Chunk {
  const Program* program;
  float* arena;
  const float* x;
  float* y;
  int64_t images;  // at most program->lanes
  int64_t input_size, output_size;  // floats of one image
  int64_t length;  // of sequences, which may be shorter than planned
};

typedef void (*KernelFunction)(const Instruction&, const Chunk&, int64_t item);
