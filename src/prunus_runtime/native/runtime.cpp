// Runs programs: instruction sets, threads, arenas, and the C interface that __init__.py loads.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include <unistd.h>

#include "core.h"

#ifdef PRUNUS_X86
extern const KernelFunction kernels_avx512[], kernels_avx2[];
extern const int64_t most_avx512, most_avx2;
#endif
extern const KernelFunction kernels_portable[];
extern const int64_t most_portable;

namespace {

struct Isa {
  const KernelFunction* kernels;
  int64_t lanes, most;
  bool usable;
};

// In the order of ISAS in __init__.py.
Isa isa(int64_t index) {
  switch (index) {
#ifdef PRUNUS_X86
    case 0: return {kernels_avx512, 16, most_avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                                                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")};
    case 1: return {kernels_avx2, 8, most_avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")};
#endif
    case 2: return {kernels_portable, 4, most_portable, true};
    default: return {nullptr, 0, 0, false};
  }
}

inline void relax() {
#if defined(PRUNUS_X86)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // about as long
#endif
}

// Waits for something that takes microseconds, unless the system runs somebody else meanwhile.
template <class Condition>
void wait_for(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return;
    relax();
  }
  while (!condition()) std::this_thread::yield();
}

// Activations of the chunk that a thread works on. Kept from run to run: it stays in the cache.
class Arena {
 public:
  ~Arena() { std::free(memory_); }
  // Null where there is no memory.
  float* reserve(int64_t floats) {
#ifdef __SANITIZE_ADDRESS__
    size_ = 0;  // exactly as much as asked for, so that nothing behind it goes unnoticed
#endif
    if (floats > size_) {
      std::free(memory_);
      size_ = 0;
      memory_ = static_cast<float*>(std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64));
      if (!memory_) return nullptr;
      for (int64_t i = 0; i < floats; ++i) memory_[i] = 0;
      size_ = floats;
    }
    return memory_;
  }

 private:
  float* memory_ = nullptr;
  int64_t size_ = 0;
};

thread_local Arena own_arena, shared_arena;

// How far an instruction of a shared chunk is: which parts somebody has begun, and how many are done.
struct alignas(64) Progress {
  std::atomic<uint64_t> begun{0};
  std::atomic<int64_t> done{0};
};

// A batch. First whole chunks, one for a thread at a time; then what cannot be shared in that way,
// chunk by chunk, with the parts of each instruction shared: a helper does its own part, which is next
// to what it did before, and the caller, who is always there, also what nobody has begun. So any
// number of threads may take part and each may come late: nobody waits for one that has not begun.
class Job {
 public:
  Job(const Program& program, const Chunk& batch, int64_t threads)
      : program_(program), kernels_(isa(program.isa).kernels), batch_(batch),
        chunks_((batch.images + program.lanes - 1) / program.lanes),
        alone_(alone(program, chunks_, threads)),
        shared_(alone_ < chunks_ ? shared_arena.reserve(program.arena) : nullptr),
        progress_((chunks_ - alone_) * program.count) {}

  void help(int64_t number) {
    for (int64_t i; (i = next_.fetch_add(1)) < alone_;) {
      if (float* own = own_arena.reserve(program_.arena)) {
        const Chunk chunk = chunk_at(i, own);
        for (int64_t k = 0; k < program_.count; ++k) run_items(k, chunk, 0, program_.instructions[k].items);
      } else {
        complete_ = false;
      }
      done_.fetch_add(1);
    }
    for (int64_t i = alone_; i < chunks_; ++i) {
      const Chunk chunk = chunk_at(i, shared_);
      for (int64_t k = 0; k < program_.count; ++k) {
        Progress& progress = progress_[(i - alone_) * program_.count + k];
        const Instruction& op = program_.instructions[k];
        const int64_t last = number == 0 || number >= op.parts ? op.parts : number + 1;
        for (int64_t part = number; part < last; ++part) {
          const uint64_t bit = uint64_t(1) << part;
          if (progress.begun.load(std::memory_order_relaxed) & bit) continue;
          if (progress.begun.fetch_or(bit, std::memory_order_relaxed) & bit) continue;
          run_items(k, chunk, op.items * part / op.parts, op.items * (part + 1) / op.parts);
          progress.done.fetch_add(1, std::memory_order_release);
        }
        wait_for([&] { return progress.done.load(std::memory_order_acquire) == op.parts; });
      }
    }
  }

  // Whether helpers would find nothing to do.
  bool for_one() const { return chunks_ == 1 && alone_ == 1; }

  // Whether there is memory for the chunk that threads share; they must not begin without.
  bool ready() const { return shared_ || alone_ == chunks_; }

  // For the caller's thread: when it returns, all is written, unless a thread had no memory.
  void finish() {
    help(0);
    wait_for([&] { return done_.load() == alone_; });
  }

  bool complete() const { return complete_; }

 private:
  // How many chunks have a thread of their own: not the last ones, if too few threads would be busy
  // with them and the others can help.
  static int64_t alone(const Program& program, int64_t chunks, int64_t threads) {
    const int64_t rest = chunks % threads;
    if (2 * rest >= threads && rest > 1) return chunks;
    for (int64_t k = 0; k < program.count; ++k)
      if (program.instructions[k].parts > 1 && threads > 1) return chunks - rest;
    return chunks;
  }

  Chunk chunk_at(int64_t i, float* memory) const {
    const int64_t first = i * program_.lanes, left = batch_.images - first;
    Chunk chunk = batch_;
    chunk.arena = memory;
    chunk.x += first * batch_.input_size;
    chunk.y += first * batch_.output_size;
    chunk.images = left < program_.lanes ? left : program_.lanes;
    return chunk;
  }

  void run_items(int64_t k, const Chunk& chunk, int64_t begin, int64_t end) const {
    const Instruction& op = program_.instructions[k];
    const KernelFunction kernel = kernels_[op.kernel];
    for (int64_t item = begin; item < end; ++item) kernel(op, chunk, item);
  }

  const Program& program_;
  const KernelFunction* kernels_;
  const Chunk batch_;  // as if it were one chunk
  const int64_t chunks_, alone_;
  float* shared_;
  std::vector<Progress> progress_;
  std::atomic<int64_t> next_{0}, done_{0};
  std::atomic<bool> complete_{true};
};

// Threads that help with one job at a time. They look out for the next job for a moment after each,
// since waking them takes longer than a small network.
class Pool {
 public:
  // Gives back false, and has done nothing, if another thread's job is running.
  bool run(Job& job, int64_t threads) {
    std::unique_lock<std::mutex> only(running_, std::try_to_lock);
    if (!only) return false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      try {
        for (; count_ < threads - 1; ++count_) std::thread(&Pool::work, this, count_ + 1).detach();
      } catch (const std::system_error&) {
        // The system gives no more threads; those that there are do the work.
      }
      wanted_ = threads - 1;
      job_ = &job;
      round_.fetch_add(1);
      if (asleep_) wake_.notify_all();
    }
    job.finish();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = nullptr;
    }
    wait_for([&] { return helping_.load() == 0; });
    return true;
  }

 private:
  void work(int64_t number) {
    for (uint64_t seen = 0;;) {
      for (int i = 0; i < 5000 && round_.load() == seen; ++i) relax();
      Job* job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        ++asleep_;
        wake_.wait(lock, [&] { return round_.load() != seen; });
        --asleep_;
        seen = round_.load();
        job = number <= wanted_ ? job_ : nullptr;
        if (job) helping_.fetch_add(1);
      }
      if (job) {
        job->help(number);
        helping_.fetch_sub(1);
      }
    }
  }

  std::mutex running_, mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> round_{0};
  std::atomic<int64_t> helping_{0};
  int64_t count_ = 0, wanted_ = 0, asleep_ = 0;
  Job* job_ = nullptr;
};

// Never destroyed: its threads may outlive the interpreter. A process made by fork has no threads
// but its own, so it gets its own pool.
Pool& pool() {
  struct Owned {
    pid_t owner;
    Pool pool;
  };
  static std::atomic<Owned*> current{nullptr};
  Owned* found = current.load();
  while (!found || found->owner != getpid()) {
    Owned* fresh = new Owned{getpid(), {}};
    if (current.compare_exchange_strong(found, fresh)) found = fresh;
    else delete fresh;
  }
  return found->pool;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

// Floats in a vector of instruction set `index`, 0 where this processor or build does not support it.
API int64_t prunus_lanes(int64_t index) { return isa(index).usable ? isa(index).lanes : 0; }

// Vectors of sums that its registers hold: the largest tile.
API int64_t prunus_most(int64_t index) { return isa(index).most; }

// Whether the processor multiplies bytes as convolution.h does, besides avx512.
API int64_t prunus_vnni() {
#ifdef PRUNUS_X86
  return __builtin_cpu_supports("avx512vnni");
#else
  return 0;
#endif
}

// The declaration that this library was compiled from: __init__.py refuses another one than its own.
API const char* prunus_abi() { return PRUNUS_ABI; }

// 0, or 1 where there was no memory.
API int prunus_run(const Program* program, const float* x, float* y, int64_t images, int64_t input_size,
                   int64_t output_size, int64_t length, int64_t threads) {
  try {
    Job job(*program, {program, nullptr, x, y, images, input_size, output_size, length}, threads);
    if (!job.ready()) return 1;
    if (threads <= 1 || job.for_one() || !pool().run(job, threads)) job.finish();
    return !job.complete();
  } catch (const std::bad_alloc&) {
    return 1;
  }
}
