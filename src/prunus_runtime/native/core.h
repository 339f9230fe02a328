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
};

typedef void (*KernelFunction)(const Instruction&, const Chunk&, int64_t item);
