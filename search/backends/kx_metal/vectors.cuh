// vec<T, N> with Metal's sizes and alignments. Swizzles are calls: v.xy is written v.kx_get(kx_axes<0, 1>()), and
// kx_set where it is assigned to.
namespace kx_metal {

template <int... I> struct kx_axes {};
template <class T, int N> struct vec;

template <class A> struct shape_of {
    using element = A;
    static constexpr int width = 1;
};
template <class T, int N> struct shape_of<vec<T, N>> {
    using element = T;
    static constexpr int width = N;
};
template <class A> using element_t = typename shape_of<A>::element;
template <class A> inline constexpr int width_v = shape_of<A>::width;

template <class V, int... I> struct kx_swizzle {
    V *target;
    using value = vec<element_t<V>, sizeof...(I)>;
    KX_FN operator value() const { return value((*target)[I]...); }
    KX_FN const kx_swizzle &operator=(const value &from) const {
        int k = 0;
        (((*target)[I] = from[k++]), ...);
        return *this;
    }
    KX_FN const kx_swizzle &operator=(const kx_swizzle &other) const { return *this = value(other); }
    template <class X> KX_FN void operator+=(const X &x) const { *this = value(*this) + x; }
    template <class X> KX_FN void operator-=(const X &x) const { *this = value(*this) - x; }
    template <class X> KX_FN void operator*=(const X &x) const { *this = value(*this) * x; }
    template <class X> KX_FN void operator/=(const X &x) const { *this = value(*this) / x; }
};

template <class V, class A> KX_FN void kx_put(V &v, int &at, const A &a) {
    if constexpr (width_v<A> == 1) {
        v[at++] = element_t<V>(a);
    } else {
        KX_UNROLL for (int i = 0; i < width_v<A>; i++) v[at++] = a[i];
    }
}

#define KX_VECTOR(N, ALIGN, ...)                                                                               \
    template <class T> struct alignas(ALIGN * sizeof(T)) vec<T, N> {                                           \
        __VA_ARGS__                                                                                            \
        vec() = default;                                                                                       \
        template <class S, enable_if_t<is_arithmetic_v<S>, int> = 0> KX_FN vec(S s) {                          \
            KX_UNROLL for (int i = 0; i < N; i++) (*this)[i] = T(s);                                           \
        }                                                                                                      \
        template <class U, enable_if_t<!is_same_v<U, T>, int> = 0> explicit KX_FN vec(const vec<U, N> &v) {    \
            KX_UNROLL for (int i = 0; i < N; i++) (*this)[i] = T(v[i]);                                        \
        }                                                                                                      \
        template <class A, class B, class... R> KX_FN vec(const A &a, const B &b, const R &...r) {             \
            static_assert(width_v<A> + width_v<B> + (0 + ... + width_v<R>) == N,                               \
                          "a vector needs as many components as it is wide");                                  \
            int at = 0;                                                                                        \
            kx_put(*this, at, a);                                                                              \
            kx_put(*this, at, b);                                                                              \
            (kx_put(*this, at, r), ...);                                                                       \
        }                                                                                                      \
        KX_FN T &operator[](int i) { return (&x)[i]; }                                                         \
        KX_FN const T &operator[](int i) const { return (&x)[i]; }                                             \
        template <int... I> KX_FN vec<T, sizeof...(I)> kx_get(kx_axes<I...>) const {                           \
            return vec<T, sizeof...(I)>((*this)[I]...);                                                        \
        }                                                                                                      \
        template <int... I> KX_FN kx_swizzle<vec, I...> kx_set(kx_axes<I...>) { return {this}; }               \
        template <class X> KX_FN vec &operator+=(const X &other) { return *this = *this + other; }             \
        template <class X> KX_FN vec &operator-=(const X &other) { return *this = *this - other; }             \
        template <class X> KX_FN vec &operator*=(const X &other) { return *this = *this * other; }             \
        template <class X> KX_FN vec &operator/=(const X &other) { return *this = *this / other; }             \
        template <class X> KX_FN vec &operator&=(const X &other) { return *this = *this & other; }             \
        template <class X> KX_FN vec &operator|=(const X &other) { return *this = *this | other; }             \
        template <class X> KX_FN vec &operator^=(const X &other) { return *this = *this ^ other; }             \
        template <class X> KX_FN vec &operator<<=(const X &other) { return *this = *this << other; }           \
        template <class X> KX_FN vec &operator>>=(const X &other) { return *this = *this >> other; }           \
    };
KX_VECTOR(2, 2, union { T x; T r; }; union { T y; T g; };)
KX_VECTOR(3, 4, union { T x; T r; }; union { T y; T g; }; union { T z; T b; };)
KX_VECTOR(4, 4, union { T x; T r; }; union { T y; T g; }; union { T z; T b; }; union { T w; T a; };)
#undef KX_VECTOR

template <class R, class F, class T, int N> KX_FN vec<R, N> kx_map(F f, const vec<T, N> &a) {
    vec<R, N> result;
    KX_UNROLL for (int i = 0; i < N; i++) result[i] = R(f(a[i]));
    return result;
}
template <class R, class F, class T, int N> KX_FN vec<R, N> kx_map(F f, const vec<T, N> &a, const vec<T, N> &b) {
    vec<R, N> result;
    KX_UNROLL for (int i = 0; i < N; i++) result[i] = R(f(a[i], b[i]));
    return result;
}

#define KX_VECTOR_OPERATOR(OP, RESULT)                                                                         \
    template <class T, int N> KX_FN vec<RESULT, N> operator OP(const vec<T, N> &a, const vec<T, N> &b) {       \
        return kx_map<RESULT>([](T p, T q) { return p OP q; }, a, b);                                          \
    }                                                                                                          \
    template <class T, int N, class S, enable_if_t<is_arithmetic_v<S>, int> = 0>                               \
    KX_FN vec<RESULT, N> operator OP(const vec<T, N> &a, S b) { return a OP vec<T, N>(b); }                    \
    template <class T, int N, class S, enable_if_t<is_arithmetic_v<S>, int> = 0>                               \
    KX_FN vec<RESULT, N> operator OP(S a, const vec<T, N> &b) { return vec<T, N>(a) OP b; }
KX_VECTOR_OPERATOR(+, T) KX_VECTOR_OPERATOR(-, T) KX_VECTOR_OPERATOR(*, T) KX_VECTOR_OPERATOR(/, T)
KX_VECTOR_OPERATOR(%, T) KX_VECTOR_OPERATOR(&, T) KX_VECTOR_OPERATOR(|, T) KX_VECTOR_OPERATOR(^, T)
KX_VECTOR_OPERATOR(<<, T) KX_VECTOR_OPERATOR(>>, T)
KX_VECTOR_OPERATOR(<, bool) KX_VECTOR_OPERATOR(>, bool) KX_VECTOR_OPERATOR(<=, bool)
KX_VECTOR_OPERATOR(>=, bool) KX_VECTOR_OPERATOR(==, bool) KX_VECTOR_OPERATOR(!=, bool)
KX_VECTOR_OPERATOR(&&, bool) KX_VECTOR_OPERATOR(||, bool)
#undef KX_VECTOR_OPERATOR
template <class T, int N> KX_FN vec<T, N> operator-(const vec<T, N> &a) {
    return kx_map<T>([](T p) { return -p; }, a);
}
template <class T, int N> KX_FN vec<T, N> operator~(const vec<T, N> &a) {
    return kx_map<T>([](T p) { return ~p; }, a);
}
template <class T, int N> KX_FN vec<bool, N> operator!(const vec<T, N> &a) {
    return kx_map<bool>([](T p) { return !p; }, a);
}

#define KX_NAMES(T)        \
    using T##2 = vec<T, 2>; \
    using T##3 = vec<T, 3>; \
    using T##4 = vec<T, 4>;
KX_NAMES(float) KX_NAMES(half) KX_NAMES(bfloat) KX_NAMES(char) KX_NAMES(uchar) KX_NAMES(short) KX_NAMES(ushort)
KX_NAMES(int) KX_NAMES(uint) KX_NAMES(long) KX_NAMES(ulong) KX_NAMES(bool)
#undef KX_NAMES

KX_FN uint3 kx_uint3(dim3 v) { return uint3(v.x, v.y, v.z); }

}  // namespace kx_metal
