// {"outputs": 800, "grid": [100, 1, 1], "threadgroup": [64, 1, 1]}
// ---- body
const uint t = thread_position_in_grid.x;
const uint lane = thread_index_in_simdgroup;
const float x = f[t % 64];
device float* out = o + t * 8;
out[0] = simd_sum(x);
out[1] = float(threads_per_threadgroup.x) + 1000.0f * float(threads_per_grid.x);
float part = 0.0f;
if (lane % 3 == 1) {
    part = simd_sum(x);
} else {
    part = simd_max(x) + 100.0f;
}
out[2] = part;
float total = 0.0f;
for (uint n = 0; n < lane % 5; n++) {
    total += simd_prefix_inclusive_sum(1.0f);
}
out[3] = total;
out[4] = float(simdgroups_per_threadgroup) + 10.0f * float(threadgroups_per_grid.x);
if (lane > 20) {
    out[5] = 1.0f;
    out[6] = 2.0f;
    out[7] = 3.0f;
    return;
}
out[5] = simd_sum(1.0f);
out[6] = simd_prefix_exclusive_sum(1.0f);
out[7] = float(uint64_t(simd_active_threads_mask()) & 0xffffff);
