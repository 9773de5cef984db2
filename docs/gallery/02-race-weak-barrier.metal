// A barrier of the wrong kind: simdgroup_barrier orders the 32 threads of one SIMD-group only.
// On a GPU the numbers are often right all the same.
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[64];
    tile[t] = x[i];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = tile[63 - t];
}
