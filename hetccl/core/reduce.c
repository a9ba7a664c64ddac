#include "reduce.h"

#include <string.h>

/* One clone a function for processors with AVX2, and FMA, chosen by the loader. */
#if defined(__x86_64__) && !defined(HET_NO_CLONES)
#define CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))

enum { BLOCK = 1024 }; /* elements of an accumulator: stays in the first-level cache */

/* ---- element types: storage T, accumulator A, how to get from one to the other ---- */

typedef uint16_t bf16_t, f16_t;
typedef uint8_t e4m3fn_t, e5m2_t, e4m3fnuz_t, e5m2fnuz_t;

INLINE float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float load_bf16(bf16_t x) { return float_of_bits((uint32_t)x << 16); }

INLINE bf16_t store_bf16(float x) {
    uint32_t bits = bits_of_float(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (bf16_t)(x != x ? 0x7fc0u : rounded);
}

/* Small floats: `mantissa` bits of fraction, exponent bias `bias`. IEEE kinds (f16, e5m2) have infinities, e4m3fn has none and
 * NaN at its last code, the fnuz kinds have one zero and NaN at the code of minus zero. Out of range becomes infinity, NaN or,
 * for e4m3fn, the largest number, as torch's casts do. Selects instead of branches, so that loops over them vectorise. */
enum kind { IEEE, FN, FNUZ };

INLINE float load_small(uint32_t x, int bits, int mantissa, int bias, enum kind kind) {
    uint32_t top = 1u << (bits - 1), magnitude = x & (top - 1u), sign = (x & top) << (32 - bits);
    /* As if the exponent were a float's: then a multiplication moves the bias, and brings subnormals along. */
    uint32_t shifted = magnitude << (23 - mantissa);
    uint32_t value = bits_of_float(float_of_bits(shifted) * float_of_bits((uint32_t)(127 + 127 - bias) << 23));
    uint32_t infinity = (top >> mantissa) - 1u;
    if (kind == IEEE) value = magnitude >> mantissa >= infinity ? shifted | 0x7f800000u : value;
    if (kind == FN) value = magnitude == top - 1u ? 0x7fc00000u : value;
    if (kind == FNUZ) return float_of_bits(x == top ? 0x7fc00000u : value | sign);
    return float_of_bits(value | sign);
}

INLINE uint32_t store_small(float x, int bits, int mantissa, int bias, enum kind kind) {
    uint32_t all = bits_of_float(x), magnitude = all & 0x7fffffffu;
    uint32_t top = 1u << (bits - 1), sign = (all >> (32 - bits)) & top;
    uint32_t infinity = ((top >> mantissa) - 1u) << mantissa;
    uint32_t nan = kind == FNUZ ? top : kind == FN ? top - 1u : infinity | 1u << (mantissa - 1);
    uint32_t limit = kind == IEEE ? infinity : kind == FN ? top - 1u : top; /* first code that is no finite number */
    uint32_t beyond = kind == IEEE ? sign | infinity : kind == FN ? sign | (top - 2u) : top;
    /* Below the smallest normal number the adder rounds: the last place of the anchor is the unit. */
    float anchor = float_of_bits((uint32_t)(127 + 1 - bias - mantissa + 23) << 23);
    uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + anchor) - bits_of_float(anchor);
    uint32_t shift = (uint32_t)(23 - mantissa);
    uint32_t rounded = magnitude + ((1u << (shift - 1)) - 1u) + ((magnitude >> shift) & 1u);
    uint32_t normal = (rounded - ((uint32_t)(127 - bias) << 23)) >> shift;
    uint32_t code = magnitude < (uint32_t)(127 + 1 - bias) << 23 ? subnormal : normal;
    uint32_t finite = kind == FNUZ && code == 0 ? 0u : sign | code;
    return magnitude > 0x7f800000u ? nan : code >= limit ? beyond : finite;
}

/* Processors differ in which NaN an operation gives. */
INLINE float store_f32(float x) { return x != x ? __builtin_nanf("") : x; }
INLINE double store_f64(double x) { return x != x ? __builtin_nan("") : x; }

INLINE float load_f16(f16_t x) { return load_small(x, 16, 10, 15, IEEE); }
INLINE f16_t store_f16(float x) { return (f16_t)store_small(x, 16, 10, 15, IEEE); }
INLINE float load_e4m3fn(e4m3fn_t x) { return load_small(x, 8, 3, 7, FN); }
INLINE e4m3fn_t store_e4m3fn(float x) { return (e4m3fn_t)store_small(x, 8, 3, 7, FN); }
INLINE float load_e5m2(e5m2_t x) { return load_small(x, 8, 2, 15, IEEE); }
INLINE e5m2_t store_e5m2(float x) { return (e5m2_t)store_small(x, 8, 2, 15, IEEE); }
INLINE float load_e4m3fnuz(e4m3fnuz_t x) { return load_small(x, 8, 3, 8, FNUZ); }
INLINE e4m3fnuz_t store_e4m3fnuz(float x) { return (e4m3fnuz_t)store_small(x, 8, 3, 8, FNUZ); }
INLINE float load_e5m2fnuz(e5m2fnuz_t x) { return load_small(x, 8, 2, 16, FNUZ); }
INLINE e5m2fnuz_t store_e5m2fnuz(float x) { return (e5m2fnuz_t)store_small(x, 8, 2, 16, FNUZ); }

/* ---- operators; integers are computed unsigned and at least as wide as int, so that they wrap ---- */

#define OP_SUM(A, x, y) ((A)((x) + (y)))
#define OP_PROD(A, x, y) ((A)((x) * (y)))
#define OP_MIN(A, x, y) ((A)((x) < (y) || (x) != (x) ? (x) : (y)))
#define OP_MAX(A, x, y) ((A)((x) > (y) || (x) != (x) ? (x) : (y)))
#define OP_BAND(A, x, y) ((A)((x) & (y)))
#define OP_BOR(A, x, y) ((A)((x) | (y)))
#define OP_BXOR(A, x, y) ((A)((x) ^ (y)))

/* ---- kernels ----
 * Two sources, by far the most common number, in one pass; more through an accumulator, a block at a time. */

#define KERNEL(T, A, LOAD, STORE, OP)                                                                                    \
    {                                                                                                                    \
        const T *a = s[0], *b = s[1];                                                                                    \
        T *d = target;                                                                                                   \
        if (n == 2 && divisor == 1) {                                                                                    \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) {                                                   \
                A x = LOAD(a[i]), y = LOAD(b[i]);                                                                        \
                d[i] = STORE(OP(A, x, y));                                                                               \
            }                                                                                                            \
            break;                                                                                                       \
        }                                                                                                                \
        for (int64_t at = 0; at < count; at += BLOCK) {                                                                  \
            A sum[BLOCK];                                                                                                \
            int64_t size = count - at < BLOCK ? count - at : BLOCK;                                                      \
            for (int64_t i = 0; i < size; i++) sum[i] = LOAD(a[at + i]);                                                 \
            for (int k = 1; k < n; k++) {                                                                                \
                const T *c = (const T *)s[k] + at;                                                                       \
                for (int64_t i = 0; i < size; i++) {                                                                     \
                    A x = sum[i], y = LOAD(c[i]);                                                                        \
                    sum[i] = OP(A, x, y);                                                                                \
                }                                                                                                        \
            }                                                                                                            \
            if (divisor != 1)                                                                                            \
                for (int64_t i = 0; i < size; i++) sum[i] = DIVIDE(T, A, sum[i], divisor);                               \
            for (int64_t i = 0; i < size; i++) d[at + i] = STORE(sum[i]);                                                \
        }                                                                                                                \
        break;                                                                                                           \
    }

#define ARITHMETIC(T, A, LOAD, STORE, WRAP)                                                                              \
    case HET_SUM: KERNEL(T, A, LOAD, STORE, WRAP##_SUM)                                                                  \
    case HET_PROD: KERNEL(T, A, LOAD, STORE, WRAP##_PROD)                                                                \
    case HET_MIN: KERNEL(T, A, LOAD, STORE, OP_MIN)                                                                      \
    case HET_MAX: KERNEL(T, A, LOAD, STORE, OP_MAX)

#define BITWISE(T, A, LOAD, STORE)                                                                                       \
    case HET_BAND: KERNEL(T, A, LOAD, STORE, OP_BAND)                                                                    \
    case HET_BOR: KERNEL(T, A, LOAD, STORE, OP_BOR)                                                                      \
    case HET_BXOR: KERNEL(T, A, LOAD, STORE, OP_BXOR)

#define SELF(x) (x)
#define REDUCER(NAME, CASES)                                                                                             \
    CLONES static int reduce_##NAME(int op, void *target, const void *const *s, int n, int64_t count, int64_t divisor) { \
        switch (op) {                                                                                                    \
            CASES                                                                                                        \
            default: return -1;                                                                                          \
        }                                                                                                                \
        return 0;                                                                                                        \
    }

#define FLOATS(NAME, T, A, LOAD, STORE) REDUCER(NAME, ARITHMETIC(T, A, LOAD, STORE, OP))
#define INTEGERS(NAME, T) REDUCER(NAME, ARITHMETIC(T, T, SELF, SELF, WRAP) BITWISE(T, T, SELF, SELF))

#define DIVIDE(T, A, x, divisor) ((A)((x) / (A)(divisor)))
FLOATS(f16, f16_t, float, load_f16, store_f16)
FLOATS(bf16, bf16_t, float, load_bf16, store_bf16)
FLOATS(f32, float, float, SELF, store_f32)
FLOATS(f64, double, double, SELF, store_f64)
FLOATS(e4m3fn, e4m3fn_t, float, load_e4m3fn, store_e4m3fn)
FLOATS(e5m2, e5m2_t, float, load_e5m2, store_e5m2)
FLOATS(e4m3fnuz, e4m3fnuz_t, float, load_e4m3fnuz, store_e4m3fnuz)
FLOATS(e5m2fnuz, e5m2fnuz_t, float, load_e5m2fnuz, store_e5m2fnuz)

#undef DIVIDE
#define DIVIDE(T, A, x, divisor) ((A)((int64_t)(x) / (divisor)))
#define WRAP_SUM(A, x, y) ((A)((uint64_t)(x) + (uint64_t)(y)))
#define WRAP_PROD(A, x, y) ((A)((uint64_t)(x) * (uint64_t)(y)))
INTEGERS(i8, int8_t)
INTEGERS(u8, uint8_t)
INTEGERS(i16, int16_t)
INTEGERS(u16, uint16_t)
INTEGERS(i32, int32_t)
INTEGERS(u32, uint32_t)
INTEGERS(i64, int64_t)
#undef DIVIDE
#define DIVIDE(T, A, x, divisor) ((A)((x) / (uint64_t)(divisor)))
INTEGERS(u64, uint64_t)

typedef int reducer(int op, void *target, const void *const *s, int n, int64_t count, int64_t divisor);

static reducer *const reducers[HET_DTYPES] = {
    reduce_i8,  reduce_u8,   reduce_i16, reduce_u16, reduce_i32,    reduce_u32,  reduce_i64,      reduce_u64,
    reduce_f16, reduce_bf16, reduce_f32, reduce_f64, reduce_e4m3fn, reduce_e5m2, reduce_e4m3fnuz, reduce_e5m2fnuz,
};

static const int8_t widths[HET_DTYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 1};

int het_width(int dtype) { return dtype < 0 || dtype >= HET_DTYPES ? 0 : widths[dtype]; }

int het_reduce(int dtype, int op, void *target, const void *const *sources, int n, int64_t count, int64_t divisor) {
    if (dtype < 0 || dtype >= HET_DTYPES || n < 1 || divisor < 1) return -1;
    if (n == 1 && divisor == 1) {
        if (op < 0 || op >= HET_OPS) return -1;
        if (count > 0 && target != sources[0]) memmove(target, sources[0], (size_t)count * (size_t)widths[dtype]);
        return 0;
    }
    const void *pair[2] = {sources[0], sources[0]}; /* a kernel may look at the second source before it counts them */
    return reducers[dtype](op, target, n == 1 ? pair : sources, n, count, divisor);
}
