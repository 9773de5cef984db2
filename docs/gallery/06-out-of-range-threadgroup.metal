// An index past a row of a threadgroup array lands in the next row, which no bounds check of a buffer would see.
#include <metal_stdlib>
using namespace metal;

kernel void transpose(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                      uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[8][8];
    tile[t / 8][t % 8] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[t] = tile[t % 8][t / 8 + 1];
}
