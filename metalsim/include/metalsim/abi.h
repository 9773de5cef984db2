/* What compiled kernels and the runtime say to each other. Plain C: the shim headers (C++) and the
 * runtime (C) both include it. Python mirrors the launch structures in metalsim/build/abi.py. */
#ifndef METALSIM_ABI_H
#define METALSIM_ABI_H

typedef __UINT8_TYPE__ msim_u8;
typedef __UINT16_TYPE__ msim_u16;
typedef __UINT32_TYPE__ msim_u32;
typedef __UINT64_TYPE__ msim_u64;
typedef __INT64_TYPE__ msim_i64;
typedef __UINTPTR_TYPE__ msim_address;

/* Element types of collective operations. */
enum {
    MSIM_F32, MSIM_F16, MSIM_BF16,
    MSIM_I8, MSIM_U8, MSIM_I16, MSIM_U16, MSIM_I32, MSIM_U32, MSIM_I64, MSIM_U64
};

/* Collective operations of a SIMD-group. */
enum {
    MSIM_SUM, MSIM_PRODUCT, MSIM_MIN, MSIM_MAX, MSIM_AND, MSIM_OR, MSIM_XOR,
    MSIM_PREFIX_INCLUSIVE_SUM, MSIM_PREFIX_EXCLUSIVE_SUM,
    MSIM_PREFIX_INCLUSIVE_PRODUCT, MSIM_PREFIX_EXCLUSIVE_PRODUCT,
    MSIM_SHUFFLE, MSIM_SHUFFLE_UP, MSIM_SHUFFLE_DOWN, MSIM_SHUFFLE_XOR,
    MSIM_ROTATE_UP, MSIM_ROTATE_DOWN, MSIM_FILL_UP, MSIM_FILL_DOWN,
    MSIM_BROADCAST, MSIM_BROADCAST_FIRST,
    MSIM_BALLOT, MSIM_ALL, MSIM_ANY, MSIM_IS_FIRST, MSIM_ACTIVE_MASK,
    MSIM_SIMD_BARRIER, MSIM_MATRIX_MULTIPLY, MSIM_MATRIX_SYNC,
    MSIM_MATRIX_PRODUCTS, MSIM_EXCHANGES /* only in plain mode */
};

/* The attribute thread_index_in_simdgroup, see msim_attribute. */
enum { MSIM_LANE_ATTRIBUTE = 36 };

/* Threadgroup memory whose length the launch gives: indices, and bytes that one may have at most. */
enum { MSIM_THREADGROUP_ARGUMENTS = 31, MSIM_THREADGROUP_BYTES = 65536 };

/* mem_flags, by Metal's names. */
enum { MSIM_MEM_NONE = 0, MSIM_MEM_DEVICE = 1, MSIM_MEM_THREADGROUP = 2 };

/* A lane's part in a collective operation; lives on the lane's stack until the operation fired. */
typedef struct msim_request {
    void *value;       /* in: the lane's operand, out: its result; of a matrix product: result, a, b, c, 8 bytes each */
    const void *fill;  /* fill data of shuffle_and_fill, as large as value */
    msim_u32 op;
    msim_u32 type;     /* element type */
    msim_u32 count;    /* elements of value: 1, or components of a vector */
    msim_u32 width;    /* lanes that work together: SIMD width, 4 for quad-groups, modulo of fills */
    msim_u32 lane;     /* lane, delta or mask of shuffles; mem_flags of a barrier; types of a, b, c, 8 bits each */
    msim_u32 line;
    const char *place;
} msim_request;

/* A lane's two elements of an 8x8 matrix. */
typedef struct msim_pair {
    float first, second;
} msim_pair;

#ifdef __cplusplus
#define MSIM_RUNTIME extern "C" [[clang::sycl_external]] __attribute__((convergent, nomerge, nothrow))
#else
#define MSIM_RUNTIME
#endif

MSIM_RUNTIME void msim_collective(msim_request *request);
MSIM_RUNTIME msim_u64 msim_vote(msim_request *request);
MSIM_RUNTIME msim_pair msim_multiply(float a0, float a1, float b0, float b1, float c0, float c1, msim_u32 line,
                                     const char *place);
MSIM_RUNTIME msim_u32 msim_exchange(msim_u32 bits, msim_u32 mask, msim_u32 line, const char *place);
MSIM_RUNTIME void msim_barrier(msim_u32 flags, msim_u32 line, const char *place);
MSIM_RUNTIME void msim_declare(const void *array, msim_u64 bytes, msim_u32 element_bytes, const char *name);
MSIM_RUNTIME void *msim_buffer(msim_u32 index);
MSIM_RUNTIME msim_u32 msim_attribute(msim_u32 index);
MSIM_RUNTIME msim_u64 msim_threadgroup_length(msim_u32 index);

#undef MSIM_RUNTIME
#endif
