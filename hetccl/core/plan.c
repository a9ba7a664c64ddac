#include "plan.h"

#include "hetccl.h"
#include "reduce.h"

#include <stdlib.h>

/* header: version, steps, operands, edges
 * step: dtype, op, count, divisor, first source, sources, first target, targets
 * operand: space, peer, lane, offset
 * edge: a step, and a later one that waits for it */
enum { HEADER = 4, STEP = 8, OPERAND = 4, EDGE = 2, MOST = 1 << 24 };
static const int64_t MOST_ELEMENTS = (int64_t)1 << 59; /* so that sums and bytes of them fit in 64 bits */

/* A step has one message of each peer in hand, and one for each. */
static int repeats_a_peer(const struct het_operand *operands, int64_t count) {
    for (int64_t i = 1; i < count; i++)
        for (int64_t k = 0; k < i && operands[i].space == HET_WIRE; k++)
            if (operands[k].space == HET_WIRE && operands[k].peer == operands[i].peer) return 1;
    return 0;
}

static int read_step(const struct het_plan *plan, const int64_t *words, int64_t n_operands, struct het_step *step) {
    step->dtype = (int32_t)words[0];
    step->op = (int32_t)words[1];
    step->count = words[2];
    step->divisor = words[3];
    int64_t source = words[4], sources = words[5], target = words[6], targets = words[7];
    if (words[0] < 0 || words[0] >= HET_DTYPES || words[1] < 0 || words[1] >= HET_OPS || step->count < 0 || step->count > MOST_ELEMENTS ||
        step->divisor < 1)
        return -1;
    if (source < 0 || sources < 1 || sources > n_operands || source > n_operands - sources) return -1;
    if (words[0] >= HET_F16 && words[1] >= HET_BAND && (sources > 1 || step->divisor > 1)) return -1;
    if (target < 0 || targets < 1 || targets > n_operands || target > n_operands - targets) return -1;
    step->sources = plan->operands + source;
    step->targets = plan->operands + target;
    step->n_sources = (int32_t)sources;
    step->n_targets = (int32_t)targets;
    return repeats_a_peer(step->sources, sources) || repeats_a_peer(step->targets, targets) ? -1 : 0;
}

static int read_words(struct het_plan *plan, const int64_t *words, int64_t n_steps, int64_t n_operands, int64_t n_edges) {
    const int64_t *step = words + HEADER, *operand = step + n_steps * STEP, *edge = operand + n_operands * OPERAND;
    for (int64_t i = 0; i < n_operands; i++, operand += OPERAND) {
        if (operand[0] < HET_INPUT || operand[0] > HET_WIRE || operand[1] < 0 || operand[1] > INT32_MAX || operand[2] < 0 ||
            operand[2] > UINT16_MAX || operand[3] < 0 || operand[3] > MOST_ELEMENTS)
            return -1;
        plan->operands[i] = (struct het_operand){(int32_t)operand[0], (int32_t)operand[1], (int32_t)operand[2], operand[3]};
        if (operand[0] == HET_WIRE && operand[1] > plan->max_peer) plan->max_peer = (int32_t)operand[1];
    }
    for (int64_t i = 0; i < n_steps; i++, step += STEP) {
        if (read_step(plan, step, n_operands, &plan->steps[i])) return -1;
        if (plan->steps[i].n_sources > plan->max_sources) plan->max_sources = plan->steps[i].n_sources;
        if (plan->steps[i].n_targets > plan->max_targets) plan->max_targets = plan->steps[i].n_targets;
    }
    for (int64_t i = 0; i < n_edges; i++) {
        if (edge[EDGE * i] < 0 || edge[EDGE * i] >= edge[EDGE * i + 1] || edge[EDGE * i + 1] >= n_steps) return -1;
        plan->steps[edge[EDGE * i]].n_then++;
        plan->steps[edge[EDGE * i + 1]].n_after++;
    }
    int32_t *free_then = plan->then;
    for (int64_t i = 0; i < n_steps; i++) {
        plan->steps[i].then = free_then;
        free_then += plan->steps[i].n_then;
        plan->steps[i].n_then = 0;
    }
    for (int64_t i = 0; i < n_edges; i++) {
        struct het_step *from = &plan->steps[edge[EDGE * i]];
        plan->then[from->then - plan->then + from->n_then++] = (int32_t)edge[EDGE * i + 1];
    }
    return 0;
}

int het_interface(void) { return HET_INTERFACE; }

struct het_plan *het_plan_load(const int64_t *words, int64_t count) {
    if (count < HEADER || words[0] != HET_PLAN_VERSION) return NULL;
    int64_t n_steps = words[1], n_operands = words[2], n_edges = words[3];
    if (n_steps < 0 || n_steps > MOST || n_operands < 0 || n_operands > MOST || n_edges < 0 || n_edges > MOST) return NULL;
    if (count != HEADER + n_steps * STEP + n_operands * OPERAND + n_edges * EDGE) return NULL;
    struct het_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return NULL;
    plan->n_steps = (int32_t)n_steps;
    plan->max_peer = -1;
    plan->steps = calloc((size_t)n_steps + 1, sizeof *plan->steps);
    plan->operands = calloc((size_t)n_operands + 1, sizeof *plan->operands);
    plan->then = calloc((size_t)n_edges + 1, sizeof *plan->then);
    if (plan->steps && plan->operands && plan->then && !read_words(plan, words, n_steps, n_operands, n_edges)) return plan;
    het_plan_free(plan);
    return NULL;
}

void het_plan_free(struct het_plan *plan) {
    if (!plan) return;
    free(plan->steps);
    free(plan->operands);
    free(plan->then);
    free(plan);
}
