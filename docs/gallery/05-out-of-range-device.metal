// An index past the end of a buffer: the last thread's neighbour does not exist.
#include <metal_stdlib>
using namespace metal;

kernel void difference(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
    out[i] = x[i + 1] - x[i];
}
