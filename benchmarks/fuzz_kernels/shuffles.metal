#include <metal_stdlib>
using namespace metal;

kernel void mix_lanes(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]],
                      uint i [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {
    uint v = x[i];
    uint up = simd_shuffle_up(v, 1);
    uint down = simd_shuffle_down(v, 2u);
    uint cross = simd_shuffle_xor(v, ushort(16));
    uint first = simd_broadcast_first(v);
    if (lane & 1) {
        v = simd_shuffle_and_fill_down(v, 7u, ushort(3));
    } else {
        v = quad_broadcast(v, 2) + quad_sum(v);
    }
    simd_vote vote = simd_ballot(v > first);
    ulong mask = ulong(vote);
    uint rank = popcount(uint(mask) & ((1u << lane) - 1));
    if (simd_any(v == 3) || simd_all(v > 100)) v ^= rotate(cross, 5u);
    out[i] = v + up * (lane > 0) + down * (lane < 30) + rank + simd_prefix_inclusive_sum(clz(v) & 3);
}
