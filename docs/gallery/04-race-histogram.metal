// A race in device memory, between threads of different threadgroups: counting needs atomics.
#include <metal_stdlib>
using namespace metal;

kernel void histogram(device const uint* keys [[buffer(0)]], device uint* bins [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
    bins[keys[i]] += 1;
}
