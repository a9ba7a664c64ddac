/* A plan: the steps of one rank, as Python planned them. */
#ifndef HET_PLAN_H
#define HET_PLAN_H

#include <stdint.h>

enum het_space { HET_INPUT, HET_OUTPUT, HET_SCRATCH, HET_WIRE };

struct het_operand {
    int32_t space;
    int32_t peer, lane; /* of a wire */
    int64_t offset;     /* in elements, of a buffer */
};

struct het_step {
    int32_t dtype, op;
    int64_t count, divisor;
    const struct het_operand *sources, *targets;
    int32_t n_sources, n_targets;
    const int32_t *then; /* the steps that wait for this one */
    int32_t n_then, n_after;
};

struct het_plan {
    int32_t n_steps;
    int32_t max_peer, max_sources, max_targets;
    struct het_step *steps;
    struct het_operand *operands;
    int32_t *then;
};

#endif
