/* Reductions of all element types and operators, in the order of the sources. */
#ifndef HET_REDUCE_H
#define HET_REDUCE_H

#include <stdint.h>

enum het_dtype {
    HET_I8, HET_U8, HET_I16, HET_U16, HET_I32, HET_U32, HET_I64, HET_U64,
    HET_F16, HET_BF16, HET_F32, HET_F64, HET_E4M3FN, HET_E5M2, HET_E4M3FNUZ, HET_E5M2FNUZ,
    HET_DTYPES
};

enum het_op { HET_SUM, HET_PROD, HET_MIN, HET_MAX, HET_BAND, HET_BOR, HET_BXOR, HET_OPS };

/* Bytes of one element; 0 where there is no such type. */
int het_width(int dtype);

/* target[i] = (((sources[0][i] op sources[1][i]) op ...) / divisor), accumulated in fp32 for types of 8 and 16 bits that
 * are floating, rounded once. n >= 1. target may be one of the sources. MIN and MAX propagate NaN; a NaN that is computed
 * has one bit pattern a type, whatever the processor. Integers wrap, and
 * divide towards zero. Returns 0, or -1 where the type has no such operator. */
int het_reduce(int dtype, int op, void *target, const void *const *sources, int n, int64_t count, int64_t divisor);

#endif
