// A race in threadgroup memory: the tile is read by other threads than wrote it, with no barrier in between.
#include <metal_stdlib>
using namespace metal;

kernel void reverse(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[64];
    tile[t] = x[i];
    out[i] = tile[63 - t];
}
