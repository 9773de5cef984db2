// Threadgroup memory that is read before anything was written there: half of the tile is never filled.
#include <metal_stdlib>
using namespace metal;

kernel void sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[128];
    tile[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = tile[t] + tile[t + 64];
}
