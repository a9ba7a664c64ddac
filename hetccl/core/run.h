/* One collective that runs: its state, and what moves it on. */
#ifndef HET_RUN_H
#define HET_RUN_H

#include "group.h"
#include "plan.h"

#include <stdint.h>

struct het_error;

struct het_state {
    int64_t done;  /* elements */
    int32_t after; /* steps that it waits for */
    int32_t messages;
};

/* What a step holds while it handles one message. */
struct het_held {
    struct het_link *link;
    struct het_spilled **spilled; /* NULL: the head of the ring */
};

struct het_run {
    struct het_group *group;
    const struct het_plan *plan;
    unsigned char *bases[3];
    uint64_t sequence, what, count;
    size_t scratch_bytes;
    int64_t timeout, deadline; /* nanoseconds; 0: it has not waited yet */
    struct het_error *error;
    struct het_state *states;
    int32_t *active;
    int32_t n_active, finished;
    struct het_held *held;
    const void **sources;
    unsigned char **targets;
    int64_t slot_bytes;
    int stuck; /* turns without progress */
};

enum het_turn { HET_STUCK, HET_MOVED, HET_FINISHED };

int64_t het_now(void);

static inline int het_take(atomic_flag *flag) { return !atomic_flag_test_and_set_explicit(flag, memory_order_acquire); }
static inline void het_drop(atomic_flag *flag) { atomic_flag_clear_explicit(flag, memory_order_release); }

/* Fail with a het_status because of a rank of the group: that status, negative. */
int32_t het_run_fail(struct het_run *run, int32_t status, int32_t rank);

/* Begin what the first members describe. 0, or negative: failed. */
int32_t het_run_begin(struct het_run *run);

/* A het_turn, or negative: failed. */
int32_t het_run_turn(struct het_run *run);

/* Handle one message's worth of a step: 1 done, 0 not possible now, negative: failed. */
int32_t het_step_advance(struct het_run *run, const struct het_step *step, struct het_state *state);

/* Tell a peer how many of its messages were used. */
void het_step_report(struct het_run *run, struct het_peer *peer);

/* ---- rest.c: waiting ---- */

enum { HET_YIELD = 64, HET_SLEEP = 4000 }; /* turns in vain until the next gentler way of waiting */

/* Wait a little after `idle` turns in vain of all these runs: first spin, then give the core away, then sleep on their
 * sockets, and on `wake` unless that is negative; without any run until then. */
void het_rest(struct het_run *const *runs, int32_t n, int idle, int wake);

#endif
