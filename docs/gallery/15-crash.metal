// An integer division by zero.
#include <metal_stdlib>
using namespace metal;

kernel void blocks(device const int* sizes [[buffer(0)]], device int* out [[buffer(1)]],
                   uint i [[thread_position_in_grid]]) {
    out[i] = 1000 / sizes[i];
}
