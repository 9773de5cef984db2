// {"outputs": 1024, "grid": [32, 1, 1], "threadgroup": [32, 1, 1]}
constant float table[3] = {0.5, 1.5, 2.5};
template <typename V>
inline float total(const thread V& v) {
    return float(v.x) + float(v.y);
}
struct Pair {
    float4 left;
    half2 right;
};
// ---- body
const uint t = thread_position_in_grid.x;
device float* out = o + t * 32;
float4 v = *reinterpret_cast<const device float4*>(f + 4 * (t % 16));
half4 w = *reinterpret_cast<const device half4*>(h + 4 * (t % 16));
out[0] = v.x + v.y;
float2 s = v.zw;
out[1] = s.x;
out[2] = s.y;
v.xy = v.yx;
out[3] = v.x;
out[4] = v.y;
v.yz += float2(1.0, 2.0);
out[5] = v.y;
out[6] = v.z;
float3 c = cross(v.xyz, float3(1.0, 2.0, 3.0));
out[7] = c.x + c.y * 0.5 + c.z * 0.25;
out[8] = dot(v, float4(w));
out[9] = length(v.xyz);
half4 twice = w * half4(2.0h) + w;
out[10] = float(twice.w);
half one = w.x * w.y;
out[11] = float(one);
out[12] = w.x * 1.5f;
one += 3;
out[13] = float(one);
out[14] = float(half(i[t]));
out[15] = float(bfloat(f[t]));
bfloat tiny = bfloat(f[t]) * bfloat(f[t + 1]);
out[16] = float(tiny);
int4 q = int4(v * 10.0);
out[17] = float(q.x + q.w);
uint2 bits = as_type<uint2>(v.xy);
out[18] = float(bits.x >> 20);
out[19] = as_type<float>(bits.y);
bool4 less = v < float4(0.5);
out[20] = float(any(less)) + 2.0 * float(all(less));
float4 chosen = select(v, float4(w), less);
out[21] = chosen.x + chosen.y + chosen.z + chosen.w;
out[22] = total(v) + total(w);
Pair pair;
pair.left = v;
pair.right = w.xy;
out[23] = pair.left.w + float(pair.right.y);
out[24] = table[t % 3];
out[25] = clamp(v.x, -0.5, 0.5) + float(clamp(i[t], -100, 100));
out[26] = max(v, 0.25).x + min(float(w.z), v.z);
float4 mixed = mix(v, float4(1.0), 0.25);
out[27] = mixed.y;
out[28] = float(popcount(uint(i[t])) + clz(uint(t + 1)) * 100);
out[29] = float(i[t] / 7 % 5);
out[30] = v[int(t % 4)];
out[31] = -w.x;
