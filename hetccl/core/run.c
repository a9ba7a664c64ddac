#include "run.h"

#include "hetccl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A step runs as a stream of messages, and all steps that may run do so side by side: that is what overlaps sending,
 * reducing and receiving. A turn gives every running step as much as it can do now. */

enum { LOOK = 64 }; /* turns without progress between two looks at the peers and the clock */

int64_t het_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int32_t het_run_fail(struct het_run *run, int32_t status, int32_t rank) {
    run->error->status = status;
    run->error->rank = rank;
    return -status;
}

static int finished(const struct het_step *step, const struct het_state *state) {
    return state->done == step->count && state->messages > 0; /* an empty step still carries its empty message */
}

/* Every running step its turn. 1: something moved, 0: nothing did, negative: failed. */
static int32_t pass(struct het_run *run) {
    int32_t moved = 0, kept = 0, n = run->n_active;
    for (int32_t r = 0; r < run->group->size; r++)
        if (run->group->peers[r].link) {
            het_link_pump(run->group->peers[r].link);
            if (run->group->peers[r].used >= HET_REPORT) het_step_report(run, &run->group->peers[r]);
        }
    for (int32_t i = 0; i < n; i++) {
        int32_t index = run->active[i], result = 0;
        const struct het_step *step = &run->plan->steps[index];
        struct het_state *state = &run->states[index];
        while (!finished(step, state) && (result = het_step_advance(run, step, state)) > 0) moved = 1;
        if (result < 0) return result;
        if (!finished(step, state)) {
            run->active[kept++] = index;
            continue;
        }
        run->finished++;
        for (int32_t k = 0; k < step->n_then; k++)
            if (--run->states[step->then[k]].after == 0) run->active[run->n_active++] = step->then[k];
    }
    int32_t added = run->n_active - n;
    memmove(run->active + kept, run->active + n, (size_t)added * sizeof *run->active);
    run->n_active = kept + added;
    return moved;
}

/* Whether something that was put on a link's sockets is not on its way. To a dead peer nothing is: who needs nothing more of
 * it may be done all the same. */
static int unsent(const struct het_link *link) {
    return link && link->stripes && !atomic_load(&link->dead) && atomic_load(link->tx.consumed) < atomic_load(&link->tx_last);
}

static int flushed(const struct het_group *group) {
    for (int32_t r = 0; r < group->size; r++)
        if (unsent(group->peers[r].link)) return 0;
    return 1;
}

/* Note who is waited for: those that sent nothing of this collective; others, which wait themselves, only without such. */
static void wait_for(struct het_run *run, int32_t peer) {
    struct het_error *error = run->error;
    int first = error->waiting_count ? run->group->peers[error->waiting[0]].heard == run->sequence : -1;
    int heard = run->group->peers[peer].heard == run->sequence;
    if (first == 0 && heard) return;
    if (first == 1 && !heard) error->waiting_count = 0;
    for (int32_t i = 0; i < error->waiting_count && i < 64; i++)
        if (error->waiting[i] == peer) return;
    if (error->waiting_count < 64) error->waiting[error->waiting_count] = peer;
    error->waiting_count++;
}

/* Whether a channel's next message has come. What a group that failed left on a link is none. The caller holds rx_busy. */
static int at_hand(struct het_link *link, uint64_t channel) {
    unsigned char *payload;
    const struct het_line *line = het_link_head(link, &payload);
    return (line && line->kind != HET_CREDIT && line->channel == channel) || het_link_find_spilled(link, channel);
}

/* Who is waited for; a dead one among them ends the wait. */
static int32_t look_at_peers(struct het_run *run) {
    run->error->waiting_count = 0;
    for (int32_t i = 0; i < run->n_active; i++) {
        const struct het_step *step = &run->plan->steps[run->active[i]];
        for (int32_t k = 0; k < step->n_sources + step->n_targets; k++) {
            const struct het_operand *at = k < step->n_sources ? &step->sources[k] : &step->targets[k - step->n_sources];
            if (at->space != HET_WIRE) continue;
            struct het_link *link = run->group->peers[at->peer].link;
            if (k < step->n_sources) {
                if (!het_take(&link->rx_busy)) continue;
                int there = at_hand(link, run->group->id << HET_LANE_BITS | (uint64_t)at->lane);
                het_drop(&link->rx_busy);
                if (there) continue;
            }
            wait_for(run, at->peer);
            if ((run->error->code = atomic_load(&link->dead))) return het_run_fail(run, HET_DEAD, at->peer);
        }
    }
    for (int32_t r = 0; r < run->group->size; r++)
        if (unsent(run->group->peers[r].link)) wait_for(run, r);
    return 0;
}

/* Grow a block of the group to hold so many bytes. */
static int hold(void **block, size_t *held, size_t bytes) {
    if (bytes <= *held) return 0;
    free(*block);
    *block = malloc(bytes);
    *held = *block ? bytes : 0;
    return *block ? 0 : -1;
}

/* Lay the state of a run out in the group's arena. */
static int prepare(struct het_run *run) {
    struct het_group *group = run->group;
    const struct het_plan *plan = run->plan;
    size_t steps = (size_t)plan->n_steps, in = (size_t)plan->max_sources, out = (size_t)plan->max_targets;
    size_t bytes = steps * sizeof *run->states + (in + out) * sizeof *run->held + in * sizeof *run->sources +
                   out * sizeof *run->targets + steps * sizeof *run->active;
    if (hold(&group->arena, &group->arena_bytes, bytes) || hold(&group->scratch, &group->scratch_bytes, run->scratch_bytes)) return -1;
    run->bases[HET_SCRATCH] = group->scratch;
    run->states = group->arena;
    run->held = (struct het_held *)(void *)(run->states + steps);
    run->sources = (const void **)(void *)(run->held + in + out);
    run->targets = (unsigned char **)(void *)(run->sources + in);
    run->active = (int32_t *)(void *)(run->targets + out);
    for (int32_t i = 0; i < plan->n_steps; i++) {
        run->states[i] = (struct het_state){.after = plan->steps[i].n_after};
        if (!plan->steps[i].n_after) run->active[run->n_active++] = i;
    }
    return 0;
}

static int fits(struct het_run *run) {
    for (int32_t r = 0; r < run->group->size; r++) {
        const struct het_link *link = run->group->peers[r].link;
        if (link) run->slot_bytes = link->tx.slot_bytes;
    }
    if (run->plan->max_peer >= run->group->size) return 0;
    for (int32_t i = 0; i < run->plan->n_steps; i++) {
        const struct het_step *step = &run->plan->steps[i];
        for (int32_t k = 0; k < step->n_sources + step->n_targets; k++) {
            const struct het_operand *at = k < step->n_sources ? &step->sources[k] : &step->targets[k - step->n_sources];
            if (at->space == HET_WIRE && !run->group->peers[at->peer].link) return 0;
        }
    }
    return 1;
}

int32_t het_run_begin(struct het_run *run) {
    if (atomic_load(&run->group->aborted)) return het_run_fail(run, HET_ABORTED, -1);
    if (!fits(run)) return het_run_fail(run, HET_INVALID, -1);
    return prepare(run) ? het_run_fail(run, HET_MEMORY, -1) : 0;
}

int32_t het_run_turn(struct het_run *run) {
    int32_t moved = pass(run);
    if (moved < 0) return moved;
    if (run->finished == run->plan->n_steps && flushed(run->group)) return HET_FINISHED;
    if (moved) {
        run->stuck = 0;
        return HET_MOVED;
    }
    if (atomic_load(&run->group->aborted)) return het_run_fail(run, HET_ABORTED, -1);
    if (++run->stuck % LOOK == 0) {
        int64_t time = het_now();
        if (!run->deadline) run->deadline = time + run->timeout;
        int32_t status = look_at_peers(run);
        if (status) return status;
        if (time > run->deadline) return het_run_fail(run, HET_TIMEOUT, -1);
    }
    return HET_STUCK;
}
