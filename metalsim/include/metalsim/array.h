/* array<T, N> and the logic of type traits. */
#ifndef METALSIM_ARRAY_H
#define METALSIM_ARRAY_H

#include "types.h"

namespace metal {

template <class T, size_t N> struct array {
    using value_type = T;
    using size_type = size_t;

    T __elems[N];

    static constexpr MSIM_INLINE size_t size() { return N; }
    static constexpr MSIM_INLINE size_t max_size() { return N; }
    static constexpr MSIM_INLINE bool empty() { return N == 0; }
    constexpr MSIM_INLINE T &operator[](size_t i) { return __elems[i]; }
    constexpr MSIM_INLINE const T &operator[](size_t i) const { return __elems[i]; }
    constexpr MSIM_INLINE T &at(size_t i) { return __elems[i]; }
    constexpr MSIM_INLINE const T &at(size_t i) const { return __elems[i]; }
    constexpr MSIM_INLINE T &front() { return __elems[0]; }
    constexpr MSIM_INLINE const T &front() const { return __elems[0]; }
    constexpr MSIM_INLINE T &back() { return __elems[N - 1]; }
    constexpr MSIM_INLINE const T &back() const { return __elems[N - 1]; }
    constexpr MSIM_INLINE T *data() { return __elems; }
    constexpr MSIM_INLINE const T *data() const { return __elems; }
    constexpr MSIM_INLINE T *begin() { return __elems; }
    constexpr MSIM_INLINE const T *begin() const { return __elems; }
    constexpr MSIM_INLINE T *end() { return __elems + N; }
    constexpr MSIM_INLINE const T *end() const { return __elems + N; }
    MSIM_INLINE void fill(const T &value) {
        for (size_t i = 0; i < N; i++) __elems[i] = value;
    }
};

template <class... B> struct disjunction : bool_constant<(bool(B::value) || ...)> {};
template <class... B> struct conjunction : bool_constant<(bool(B::value) && ...)> {};
template <class B> struct negation : bool_constant<!bool(B::value)> {};
template <class... B> using _disjunction = disjunction<B...>;
template <class... B> using _conjunction = conjunction<B...>;
template <class B> using _negation = negation<B>;
template <class... B> constexpr bool disjunction_v = disjunction<B...>::value;
template <class... B> constexpr bool conjunction_v = conjunction<B...>::value;
template <class B> constexpr bool negation_v = negation<B>::value;

}  // namespace metal

#endif
