// {"outputs": 1024, "grid": [32, 1, 1], "threadgroup": [32, 1, 1]}
inline float erf_like(float x) {
    return x / sqrt(1.0 + x * x);
}
// ---- body
const uint t = thread_position_in_grid.x;
device float* out = o + t * 32;
const float x = f[t];
const float p = fabs(x) + 0.1;
out[0] = exp(x);
out[1] = exp2(x);
out[2] = log(p);
out[3] = log2(p);
out[4] = sqrt(p);
out[5] = rsqrt(p);
out[6] = sin(x);
out[7] = cos(x);
out[8] = tanh(x);
out[9] = pow(p, 1.5f);
out[10] = floor(x) + ceil(x) * 8.0 + trunc(x) * 64.0;
out[11] = round(x) + rint(x) * 8.0;
out[12] = fract(x);
out[13] = fma(x, 2.0f, 1.0f);
out[14] = fmod(x, 0.3f);
out[15] = copysign(p, x);
out[16] = fast::exp(x);
out[17] = fast::exp2(x);
out[18] = fast::log(p);
out[19] = fast::divide(x, p);
out[20] = fast::rsqrt(p);
out[21] = fast::sqrt(p);
out[22] = precise::exp(x);
out[23] = metal::precise::divide(x, p);
out[24] = saturate(x) + sign(x) * 4.0;
out[25] = float(exp(h[t]));
out[26] = smoothstep(0.0f, 1.0f, p);
out[27] = atan2(x, p);
out[28] = isnan(x) ? 1.0 : isinf(x / 0.0f) ? 2.0 : 3.0;
out[29] = max(INFINITY * 0.0f, x);
out[30] = float(mulhi(uint(i[t]), 0x80000000u) >> 8);
out[31] = erf_like(x);
