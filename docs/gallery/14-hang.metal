// Threads that wait for each other through device memory: nothing guarantees that the other one runs.
#include <metal_stdlib>
using namespace metal;

kernel void turnstile(device atomic_uint* turn [[buffer(0)]], device float* out [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
    while (atomic_load_explicit(turn, memory_order_relaxed) != i + 1) {
    }
    out[i] = 1;
    atomic_fetch_add_explicit(turn, 1, memory_order_relaxed);
}
