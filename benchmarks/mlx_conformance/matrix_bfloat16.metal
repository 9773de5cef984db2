// {"outputs": 704, "grid": [32, 1, 1], "threadgroup": [32, 1, 1], "T": "bfloat16"}
// ---- body
threadgroup T left[64];
threadgroup T right[64];
const uint lane = thread_index_in_simdgroup;
for (uint k = lane; k < 64; k += 32) {
    left[k] = T(f[k]);
    right[k] = T(float(h[k]));
}
threadgroup_barrier(mem_flags::mem_threadgroup);
simdgroup_matrix<T, 8, 8> a;
simdgroup_matrix<T, 8, 8> b;
simdgroup_matrix<T, 8, 8> bt;
simdgroup_load(a, left, 8);
simdgroup_load(b, right, 8);
simdgroup_load(bt, right, 8, ulong2(0, 0), true);
simdgroup_matrix<float, 8, 8> c = make_filled_simdgroup_matrix<float, 8, 8>(0.5f);
simdgroup_multiply_accumulate(c, a, b, c);
simdgroup_store(c, o, 8);
simdgroup_matrix<float, 8, 8> d;
simdgroup_multiply(d, a, bt);
simdgroup_store(d, o + 64, 8);
simdgroup_store(d, o + 128, 8, ulong2(0, 0), true);
simdgroup_matrix<float, 8, 8> unit(2.0f);
simdgroup_store(unit, o + 192, 8);
const uint row = (lane >> 4 & 1) * 4 + (lane >> 1 & 3);
const uint column = (lane >> 3 & 1) * 4 + (lane & 1) * 2;
auto pair = c.thread_elements();
o[256 + row * 8 + column] = pair[0];
o[256 + row * 8 + column + 1] = pair[1];
float largest = max(pair[0], pair[1]);
largest = max(largest, simd_shuffle_xor(largest, 1));
largest = max(largest, simd_shuffle_xor(largest, 8));
o[320 + lane] = largest;
o[352 + lane] = simd_sum(pair[0]);
o[384 + lane] = simd_prefix_inclusive_sum(f[lane]);
const float up = simd_shuffle_up(f[lane], 2);
o[416 + lane] = lane >= 2 ? up : 0.0;
o[448 + lane] = simd_shuffle(f[lane], (lane + 11) % 32);
o[480 + lane] = float(uint64_t(simd_ballot(f[lane] > 0.0)) & 0xffffff);
o[512 + lane] = quad_sum(f[lane]);
o[544 + lane] = float(thread_position_in_threadgroup.x);
simdgroup_matrix<T, 8, 8> narrow;
narrow.thread_elements() = vec<T, 2>(T(pair[0]), T(pair[1]));
simdgroup_multiply_accumulate(c, narrow, b, c);
simdgroup_store(c, o + 576, 8);
o[640 + lane] = float(thread_index_in_threadgroup);
o[672 + lane] = simd_shuffle_down(f[lane], 0);
