// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warp copies tiles into one stage, a second warp reads each tile and gives the stage back through an
// mbarrier. EVERY_LANE: each lane gives back what it has read. Otherwise lane 0 does, behind a barrier of all
// lanes.
#include <cstdint>
#include <cstdio>

constexpr int lanes = 32, tiles = 100;
#ifdef EVERY_LANE
constexpr int arrivals = lanes;
#else
constexpr int arrivals = 1;
#endif

__device__ uint32_t shared(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void init(uint64_t *b, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(b)), "r"(count));
}
__device__ void arrive(uint64_t *b) {
  asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(shared(b)) : "memory");
}
__device__ void wait(uint64_t *b, int parity) {
  asm volatile(
      "{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;}" ::"r"(
          shared(b)),
      "r"(parity)
      : "memory");
}

__global__ void pass(const float2 *in, float *out) {
  __shared__ float2 stage[lanes];
  __shared__ uint64_t full, empty;
  const int lane = threadIdx.x % lanes;
  if (threadIdx.x == 0)
    init(&full, lanes), init(&empty, arrivals);
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < tiles; ++i)
    if (threadIdx.x < lanes) {
      wait(&empty, (i + 1) % 2);
      asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared(&stage[lane])),
                   "l"(&in[lanes * i + lane])
                   : "memory");
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&full)) : "memory");
    } else {
      wait(&full, i % 2);
      sum += stage[lanes - 1 - lane].x;
      if (arrivals == 1)
        asm volatile("bar.sync 1, 32;" ::: "memory");
      if (arrivals == lanes || lane == 0)
        arrive(&empty);
    }
  if (threadIdx.x >= lanes)
    out[lane] = sum;
}

int main() {
  float2 *in;
  float *out;
  cudaMalloc(&in, lanes * tiles * sizeof(float2)), cudaMalloc(&out, lanes * sizeof(float));
  cudaMemset(in, 0, lanes * tiles * sizeof(float2));
  pass<<<1, 2 * lanes>>>(in, out);
  const cudaError_t status = cudaDeviceSynchronize();
  if (status)
    std::printf("%s\n", cudaGetErrorString(status));
  return status != cudaSuccess;
}
