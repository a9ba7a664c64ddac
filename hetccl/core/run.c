#include "group.h"
#include "hetccl.h"
#include "plan.h"
#include "reduce.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A step runs as a stream of messages, and all steps that may run do so side by side: that is what overlaps sending,
 * reducing and receiving. A pass gives every running step its turn; a pass without progress leads to waiting. */

enum { SPIN = 64, YIELD = 4000, SPILL = 32 }; /* passes without progress until the next gentler way of waiting, or a spill */

struct state {
    int64_t done;  /* elements */
    int32_t after; /* steps that it waits for */
    int32_t messages;
};

/* What a step holds while it handles one message. */
struct held {
    struct het_link *link;
    struct het_spilled **spilled; /* NULL: the head of the ring */
};

struct run {
    struct het_group *group;
    const struct het_plan *plan;
    unsigned char *const *bases;
    uint64_t sequence, what, count;
    struct het_error *error;
    struct state *states;
    int32_t *active;
    int32_t n_active, finished;
    struct held *held;
    const void **sources;
    unsigned char **targets;
    int64_t slot_bytes;
    int stuck; /* passes without progress */
};

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int take_lock(atomic_flag *flag) { return !atomic_flag_test_and_set_explicit(flag, memory_order_acquire); }
static void drop_lock(atomic_flag *flag) { atomic_flag_clear_explicit(flag, memory_order_release); }

static int32_t fail(struct run *run, int32_t status, int32_t rank) {
    run->error->status = status;
    run->error->rank = rank;
    return -status;
}

static int32_t mismatch(struct run *run, int32_t rank, const struct het_line *line) {
    run->error->sequence = line->sequence;
    run->error->what = line->what;
    run->error->count = line->count;
    return fail(run, HET_MISMATCH, rank);
}

static int differs(const struct run *run, const struct het_line *line) {
    return line->sequence != run->sequence || line->what != run->what || line->count != run->count;
}

/* The oldest message on the ring that is not a credit; credits are taken on the way. */
static struct het_line *head(struct het_link *link, unsigned char **payload) {
    struct het_line *line;
    while ((line = het_link_head(link, payload)) && line->kind == HET_CREDIT) {
        het_group_credit(line->channel >> HET_LANE_BITS, (int32_t)line->sequence, (int32_t)line->count);
        het_link_release(link);
    }
    return line;
}

/* Make room for what stands behind the head of a ring. Of this group it counts as used from here on: a rank that waits for a
 * credit may be the one that we wait for. Of another it does not, and so the memory for those stays bounded. */
static int spill(struct run *run, int32_t peer, const struct het_line *line) {
    struct het_peer *from = &run->group->peers[peer];
    uint64_t id = line->channel >> HET_LANE_BITS;
    if (id == run->group->id) {
        from->used++;
        from->heard = line->sequence;
        return het_link_spill(from->link, HET_SPILLED);
    }
    if (!het_group_is_over(id)) return het_link_spill(from->link, HET_DATA);
    het_link_release(from->link);
    return 0;
}

/* Find the next message of a channel; on success its link's rx side is held. 1: found, 0: not there, negative: failed. */
static int32_t find_message(struct run *run, const struct het_operand *from, struct held *held, struct het_line **line,
                            unsigned char **payload) {
    struct het_link *link = run->group->peers[from->peer].link;
    uint64_t channel = run->group->id << HET_LANE_BITS | (uint64_t)from->lane;
    if (!take_lock(&link->rx_busy)) return 0;
    held->link = link;
    held->spilled = link->spilled ? het_link_find_spilled(link, channel) : NULL;
    if (held->spilled) {
        *line = &(*held->spilled)->line;
        *payload = (*held->spilled)->payload;
        return 1;
    }
    while ((*line = head(link, payload))) {
        if ((*line)->channel == channel) return 1;
        /* Another group's message stands before ours, or another step's that cannot go on: step aside for it. */
        if ((*line)->channel >> HET_LANE_BITS == run->group->id) {
            if (differs(run, *line)) { /* the peer is past what we wait for */
                int32_t status = mismatch(run, from->peer, *line);
                drop_lock(&link->rx_busy);
                return status;
            }
            if (run->stuck < SPILL) break;
        }
        if (spill(run, from->peer, *line)) {
            drop_lock(&link->rx_busy);
            return fail(run, HET_MEMORY, from->peer);
        }
    }
    drop_lock(&link->rx_busy);
    return 0;
}

static void release(struct run *run, int32_t peer, struct held *held) {
    run->group->peers[peer].heard = run->sequence;
    run->group->peers[peer].used += !held->spilled || (*held->spilled)->line.kind != HET_SPILLED;
    if (held->spilled) het_link_drop_spilled(held->link, held->spilled);
    else het_link_release(held->link);
    drop_lock(&held->link->rx_busy);
}

/* Look for credits where no step of this rank receives; behind other messages they are reached by spilling those. */
static int32_t take_credits(struct run *run, int32_t peer) {
    struct het_link *link = run->group->peers[peer].link;
    struct het_line *line;
    unsigned char *payload;
    int32_t status = 0;
    if (!take_lock(&link->rx_busy)) return 0;
    while (!status && (line = head(link, &payload)) && run->stuck >= SPILL) {
        int ours = line->channel >> HET_LANE_BITS == run->group->id;
        if (ours && differs(run, line)) status = mismatch(run, peer, line); /* the peer is past what we want to send */
        else if (spill(run, peer, line)) status = fail(run, HET_MEMORY, peer);
    }
    drop_lock(&link->rx_busy);
    return status;
}

/* Whether a peer may be sent one more message: 1 or 0, negative: failed. What only sends leaves half of the window to what
 * passes on. */
static int32_t window_open(struct run *run, int32_t peer, int passes_on) {
    int32_t window = passes_on ? HET_WINDOW : HET_WINDOW / 2;
    _Atomic int32_t *under_way = &run->group->peers[peer].under_way;
    int32_t status = 0;
    if (atomic_load_explicit(under_way, memory_order_acquire) >= window) status = take_credits(run, peer);
    return status ? status : atomic_load_explicit(under_way, memory_order_acquire) < window;
}

static int any_wire(const struct het_operand *operands, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (operands[i].space == HET_WIRE) return 1;
    return 0;
}

/* A free slot towards a peer; on success its link's tx side is held. 1: found, 0: none now. What only sends leaves half
 * of the slots to what passes on: else two full rings could wait for each other. */
static int find_slot(struct run *run, const struct het_operand *to, uint32_t bytes, int passes_on, struct het_line **line,
                     unsigned char **payload) {
    struct het_peer *peer = &run->group->peers[to->peer];
    if (!take_lock(&peer->link->tx_busy)) return 0;
    if ((*line = het_link_reserve(peer->link, bytes, passes_on ? 0 : peer->link->tx.slots / 2, payload))) return 1;
    drop_lock(&peer->link->tx_busy);
    return 0;
}

static void send(struct run *run, const struct het_operand *to, struct het_line *line) {
    struct het_peer *peer = &run->group->peers[to->peer];
    line->kind = HET_DATA;
    line->channel = run->group->id << HET_LANE_BITS | (uint64_t)to->lane;
    line->sequence = run->sequence;
    line->what = run->what;
    line->count = run->count;
    atomic_fetch_add_explicit(&peer->under_way, 1, memory_order_acq_rel);
    het_link_commit(peer->link);
    drop_lock(&peer->link->tx_busy);
}

static void report_used(struct run *run, struct het_peer *peer) {
    unsigned char *payload;
    if (!take_lock(&peer->link->tx_busy)) return;
    struct het_line *line = het_link_reserve(peer->link, 0, 0, &payload);
    if (line) {
        line->kind = HET_CREDIT;
        line->channel = run->group->id << HET_LANE_BITS;
        line->sequence = (uint64_t)run->group->rank;
        line->count = (uint64_t)peer->used;
        peer->used = 0;
        het_link_commit(peer->link);
    }
    drop_lock(&peer->link->tx_busy);
}

static void compute(const struct het_step *step, struct run *run, int64_t count, size_t bytes) {
    unsigned char *first = run->targets[0];
    (void)het_reduce(step->dtype, step->op, first, run->sources, step->n_sources, count, step->divisor);
    for (int32_t i = 1; i < step->n_targets; i++)
        if (bytes) memcpy(run->targets[i], first, bytes);
}

/* Handle one message's worth of a step: 1 done, 0 not possible now, negative: failed. */
static int32_t advance(struct run *run, const struct het_step *step, struct state *state) {
    int64_t width = het_width(step->dtype), most = run->slot_bytes / width;
    int64_t count = step->count - state->done < most ? step->count - state->done : most;
    size_t bytes = (size_t)(count * width);
    int32_t found = 1, n_in = 0, n_out = 0;
    int passes_on = any_wire(step->sources, step->n_sources);
    struct held *out = run->held + run->plan->max_sources;
    struct het_line *line;
    unsigned char *payload;

    /* Before anything is held: credits come by the links that sources are about to hold. */
    for (int32_t i = 0; i < step->n_targets; i++)
        if (step->targets[i].space == HET_WIRE && (found = window_open(run, step->targets[i].peer, passes_on)) <= 0) return found;
    for (; n_in < step->n_sources && found > 0; n_in++) {
        const struct het_operand *from = &step->sources[n_in];
        run->held[n_in].link = NULL;
        if (from->space != HET_WIRE) {
            run->sources[n_in] = run->bases[from->space] + (from->offset + state->done) * width;
            continue;
        }
        found = find_message(run, from, &run->held[n_in], &line, &payload);
        if (found <= 0) break;
        run->sources[n_in] = payload;
        if (differs(run, line) || line->bytes != bytes) {
            found = mismatch(run, from->peer, line);
            drop_lock(&run->held[n_in].link->rx_busy);
            break;
        }
    }
    for (; found > 0 && n_out < step->n_targets; n_out++) {
        const struct het_operand *to = &step->targets[n_out];
        out[n_out].link = NULL;
        if (to->space != HET_WIRE) {
            run->targets[n_out] = run->bases[to->space] + (to->offset + state->done) * width;
            continue;
        }
        found = find_slot(run, to, (uint32_t)bytes, passes_on, &line, &run->targets[n_out]);
        if (found <= 0) break;
        out[n_out].link = run->group->peers[to->peer].link;
        out[n_out].spilled = (struct het_spilled **)(void *)line;
    }
    if (found > 0) {
        compute(step, run, count, bytes);
        for (int32_t i = 0; i < n_out; i++)
            if (out[i].link) send(run, &step->targets[i], (struct het_line *)(void *)out[i].spilled);
        for (int32_t i = 0; i < n_in; i++)
            if (run->held[i].link) release(run, step->sources[i].peer, &run->held[i]);
        state->done += count;
        state->messages++;
        return 1;
    }
    for (int32_t i = 0; i < n_out; i++)
        if (out[i].link) drop_lock(&out[i].link->tx_busy);
    for (int32_t i = 0; i < n_in; i++) {
        if (!run->held[i].link) continue;
        /* What cannot be used for long makes room for what stands behind it. */
        unsigned char *unused;
        int32_t peer = step->sources[i].peer;
        if (run->stuck >= SPILL && !run->held[i].spilled && spill(run, peer, het_link_head(run->held[i].link, &unused)))
            found = fail(run, HET_MEMORY, peer);
        drop_lock(&run->held[i].link->rx_busy);
    }
    return found;
}

static int finished(const struct het_step *step, const struct state *state) {
    return state->done == step->count && state->messages > 0; /* an empty step still carries its empty message */
}

/* Every running step its turn. 1: something moved, 0: nothing did, negative: failed. */
static int32_t pass(struct run *run) {
    int32_t moved = 0, kept = 0, n = run->n_active;
    for (int32_t r = 0; r < run->group->size; r++)
        if (run->group->peers[r].link) {
            het_link_pump(run->group->peers[r].link);
            if (run->group->peers[r].used >= HET_REPORT) report_used(run, &run->group->peers[r]);
        }
    for (int32_t i = 0; i < n; i++) {
        int32_t index = run->active[i], result = 0;
        const struct het_step *step = &run->plan->steps[index];
        struct state *state = &run->states[index];
        while (!finished(step, state) && (result = advance(run, step, state)) > 0) moved = 1;
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
static void wait_for(struct run *run, int32_t peer) {
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
static int32_t look_at_peers(struct run *run) {
    run->error->waiting_count = 0;
    for (int32_t i = 0; i < run->n_active; i++) {
        const struct het_step *step = &run->plan->steps[run->active[i]];
        for (int32_t k = 0; k < step->n_sources + step->n_targets; k++) {
            const struct het_operand *at = k < step->n_sources ? &step->sources[k] : &step->targets[k - step->n_sources];
            if (at->space != HET_WIRE) continue;
            struct het_link *link = run->group->peers[at->peer].link;
            if (k < step->n_sources) {
                if (!take_lock(&link->rx_busy)) continue;
                int there = at_hand(link, run->group->id << HET_LANE_BITS | (uint64_t)at->lane);
                drop_lock(&link->rx_busy);
                if (there) continue;
            }
            wait_for(run, at->peer);
            if ((run->error->code = atomic_load(&link->dead))) return fail(run, HET_DEAD, at->peer);
        }
    }
    for (int32_t r = 0; r < run->group->size; r++)
        if (unsent(run->group->peers[r].link)) wait_for(run, r);
    return 0;
}

/* First spin, then give the core away, then sleep: on sockets where there are any. */
static void rest(const struct run *run) {
    if (run->stuck < SPIN) return;
    if (run->stuck < YIELD) {
        sched_yield();
        return;
    }
    struct pollfd fds[64];
    nfds_t n = 0;
    for (int32_t r = 0; r < run->group->size; r++) {
        const struct het_link *link = run->group->peers[r].link;
        for (int i = 0; link && !atomic_load(&link->dead) && i < link->stripes && n < 64; i++) {
            short want = link->stripe[i].sending <= link->tx_last ? POLLIN | POLLOUT : POLLIN;
            fds[n++] = (struct pollfd){.fd = link->stripe[i].fd, .events = want};
        }
    }
    struct timespec pause = {0, run->stuck < 2 * YIELD ? 50000 : 500000};
    (void)ppoll(fds, n, &pause, NULL);
}

static int32_t loop(struct run *run, int64_t timeout) {
    int64_t deadline = 0;
    while (run->finished < run->plan->n_steps || !flushed(run->group)) {
        int32_t moved = pass(run);
        if (moved < 0) return moved;
        if (moved) {
            run->stuck = 0;
            continue;
        }
        run->stuck++;
        if (run->stuck % SPIN == 0) {
            if (atomic_load(&run->group->aborted)) return fail(run, HET_ABORTED, -1);
            int64_t time = now();
            if (!deadline) deadline = time + timeout;
            int32_t status = look_at_peers(run);
            if (status) return status;
            if (time > deadline) return fail(run, HET_TIMEOUT, -1);
        }
        rest(run);
    }
    return 0;
}

/* Lay the state of a run out in the group's arena. */
static int prepare(struct run *run) {
    const struct het_plan *plan = run->plan;
    size_t steps = (size_t)plan->n_steps, in = (size_t)plan->max_sources, out = (size_t)plan->max_targets;
    size_t bytes = steps * sizeof *run->states + (in + out) * sizeof *run->held + in * sizeof *run->sources +
                   out * sizeof *run->targets + steps * sizeof *run->active;
    if (bytes > run->group->arena_bytes) {
        free(run->group->arena);
        run->group->arena = malloc(bytes);
        run->group->arena_bytes = run->group->arena ? bytes : 0;
        if (!run->group->arena) return -1;
    }
    run->states = run->group->arena;
    run->held = (struct held *)(void *)(run->states + steps);
    run->sources = (const void **)(void *)(run->held + in + out);
    run->targets = (unsigned char **)(void *)(run->sources + in);
    run->active = (int32_t *)(void *)(run->targets + out);
    for (int32_t i = 0; i < plan->n_steps; i++) {
        run->states[i] = (struct state){.after = plan->steps[i].n_after};
        if (!plan->steps[i].n_after) run->active[run->n_active++] = i;
    }
    return 0;
}

static int fits(struct run *run) {
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

int32_t het_run(const struct het_call *call) {
    struct het_group *group = call->group;
    struct run run = {
        .group = group, .plan = call->plan, .bases = (unsigned char *const *)call->bases, .sequence = call->sequence,
        .what = call->what, .count = call->count, .error = call->error, .slot_bytes = 1 << 20,
    };
    memset(call->error, 0, offsetof(struct het_error, waiting));
    if (atomic_load(&group->aborted)) return -fail(&run, HET_ABORTED, -1);
    if (!take_lock(&group->running)) return -fail(&run, HET_BUSY, -1);
    int32_t status;
    if (!fits(&run)) status = fail(&run, HET_INVALID, -1);
    else if (prepare(&run)) status = fail(&run, HET_MEMORY, -1);
    else status = loop(&run, call->timeout);
    drop_lock(&group->running);
    return -status;
}

int het_interface(void) { return HET_INTERFACE; }
size_t het_ring_size(uint32_t slots, uint32_t slot_bytes) { return het_ring_bytes(slots, slot_bytes); }

struct het_link *het_link_open_shm(void *tx, void *rx, uint32_t slots, uint32_t slot_bytes) {
    return het_link_shm(tx, rx, slots, slot_bytes);
}

struct het_link *het_link_open_tcp(const int32_t *fds, int32_t count, uint32_t slots, uint32_t slot_bytes) {
    return het_link_tcp(fds, count, slots, slot_bytes);
}

void het_link_close(struct het_link *link) { het_link_free(link); }
void het_link_kill(struct het_link *link, int32_t code) { atomic_store(&link->dead, code); }
