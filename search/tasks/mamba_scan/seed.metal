// One thread walks the whole sequence of one channel; the state stays in thread memory.
const int channels = u_shape[1];
const int length = u_shape[2];
const int channel = thread_position_in_grid.x;
const int batch = thread_position_in_grid.y;
const int row = (batch * channels + channel) * length;

float state[N];
for (int n = 0; n < N; n++) {
    state[n] = 0.0f;
}
for (int t = 0; t < length; t++) {
    const float raw = float(delta[row + t]) + delta_bias[channel];
    const float dt = raw > 20.0f ? raw : log(1.0f + exp(raw));
    const float x = float(u[row + t]);
    float sum = D[channel] * x;
    for (int n = 0; n < N; n++) {
        const int at = (batch * N + n) * length + t;
        state[n] = exp(dt * A[channel * N + n]) * state[n] + dt * x * float(B[at]);
        sum += state[n] * float(C[at]);
    }
    const float gate = float(z[row + t]);
    y[row + t] = T(sum * gate / (1.0f + exp(-gate)));
}
for (int n = 0; n < N; n++) {
    h_last[(batch * channels + channel) * N + n] = state[n];
}
