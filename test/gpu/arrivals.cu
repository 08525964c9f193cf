// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two groups of 128 threads exchange numbers in turns: one writes and arrives at a named barrier, at which the other waits
// before it reads (test_racecheck.py).
#include <cstdio>

__global__ void exchange(float *out) {
  __shared__ float first[32], second[32];
  const bool leads = threadIdx.x < 128;
  const int thread = threadIdx.x % 128;
  float number = thread;
  for (int turn = 0; turn < 3; ++turn) {
    if (leads) {
      if (thread % 4 == 0)
        first[thread / 4] = number;
      asm volatile("bar.arrive 1, 256;" ::: "memory");
      asm volatile("bar.sync 2, 256;" ::: "memory");
      number += second[thread / 4];
    } else {
      asm volatile("bar.sync 1, 256;" ::: "memory");
      number += first[thread / 4];
      if (thread % 4 == 0)
        second[thread / 4] = number;
      asm volatile("bar.arrive 2, 256;" ::: "memory");
    }
  }
  out[threadIdx.x] = number;
}

int main() {
  float *out = nullptr;
  cudaMalloc(&out, 256 * sizeof(float));
  exchange<<<1, 256>>>(out);
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
