#include "run.h"

#include "hetccl.h"
#include "reduce.h"

#include <string.h>

/* One message's worth of a step: what it needs is looked for and held, then it is computed, and handed on. */

enum { SPILL = 32 }; /* passes without progress until what stands in the way is set aside */

static int32_t mismatch(struct het_run *run, int32_t rank, const struct het_line *line) {
    run->error->sequence = line->sequence;
    run->error->what = line->what;
    run->error->count = line->count;
    return het_run_fail(run, HET_MISMATCH, rank);
}

static int differs(const struct het_run *run, const struct het_line *line) {
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
static int spill(struct het_run *run, int32_t peer, const struct het_line *line) {
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
static int32_t find_message(struct het_run *run, const struct het_operand *from, struct het_held *held, struct het_line **line,
                            unsigned char **payload) {
    struct het_link *link = run->group->peers[from->peer].link;
    uint64_t channel = run->group->id << HET_LANE_BITS | (uint64_t)from->lane;
    if (!het_take(&link->rx_busy)) return 0;
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
                het_drop(&link->rx_busy);
                return status;
            }
            if (run->stuck < SPILL) break;
        }
        if (spill(run, from->peer, *line)) {
            het_drop(&link->rx_busy);
            return het_run_fail(run, HET_MEMORY, from->peer);
        }
    }
    het_drop(&link->rx_busy);
    return 0;
}

static void release(struct het_run *run, int32_t peer, struct het_held *held) {
    run->group->peers[peer].heard = run->sequence;
    run->group->peers[peer].used += !held->spilled || (*held->spilled)->line.kind != HET_SPILLED;
    if (held->spilled) het_link_drop_spilled(held->link, held->spilled);
    else het_link_release(held->link);
    het_drop(&held->link->rx_busy);
}

/* Look for credits where no step of this rank receives; behind other messages they are reached by spilling those. */
static int32_t take_credits(struct het_run *run, int32_t peer) {
    struct het_link *link = run->group->peers[peer].link;
    struct het_line *line;
    unsigned char *payload;
    int32_t status = 0;
    if (!het_take(&link->rx_busy)) return 0;
    while (!status && (line = head(link, &payload)) && run->stuck >= SPILL) {
        int ours = line->channel >> HET_LANE_BITS == run->group->id;
        if (ours && differs(run, line)) status = mismatch(run, peer, line); /* the peer is past what we want to send */
        else if (spill(run, peer, line)) status = het_run_fail(run, HET_MEMORY, peer);
    }
    het_drop(&link->rx_busy);
    return status;
}

/* Whether a peer may be sent one more message: 1 or 0, negative: failed. What only sends leaves half of the window to what
 * passes on. */
static int32_t window_open(struct het_run *run, int32_t peer, int passes_on) {
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
static int find_slot(struct het_run *run, const struct het_operand *to, uint32_t bytes, int passes_on, struct het_line **line,
                     unsigned char **payload) {
    struct het_peer *peer = &run->group->peers[to->peer];
    if (!het_take(&peer->link->tx_busy)) return 0;
    if ((*line = het_link_reserve(peer->link, bytes, passes_on ? 0 : peer->link->tx.slots / 2, payload))) return 1;
    het_drop(&peer->link->tx_busy);
    return 0;
}

static void send(struct het_run *run, const struct het_operand *to, struct het_line *line) {
    struct het_peer *peer = &run->group->peers[to->peer];
    line->kind = HET_DATA;
    line->channel = run->group->id << HET_LANE_BITS | (uint64_t)to->lane;
    line->sequence = run->sequence;
    line->what = run->what;
    line->count = run->count;
    atomic_fetch_add_explicit(&peer->under_way, 1, memory_order_acq_rel);
    het_link_commit(peer->link);
    het_drop(&peer->link->tx_busy);
}

void het_step_report(struct het_run *run, struct het_peer *peer) {
    unsigned char *payload;
    if (!het_take(&peer->link->tx_busy)) return;
    struct het_line *line = het_link_reserve(peer->link, 0, 0, &payload);
    if (line) {
        line->kind = HET_CREDIT;
        line->channel = run->group->id << HET_LANE_BITS;
        line->sequence = (uint64_t)run->group->rank;
        line->count = (uint64_t)peer->used;
        peer->used = 0;
        het_link_commit(peer->link);
    }
    het_drop(&peer->link->tx_busy);
}

static void compute(const struct het_step *step, struct het_run *run, int64_t count, size_t bytes) {
    unsigned char *first = run->targets[0];
    (void)het_reduce(step->dtype, step->op, first, run->sources, step->n_sources, count, step->divisor);
    for (int32_t i = 1; i < step->n_targets; i++)
        if (bytes) memcpy(run->targets[i], first, bytes);
}

/* Handle one message's worth of a step: 1 done, 0 not possible now, negative: failed. */
int32_t het_step_advance(struct het_run *run, const struct het_step *step, struct het_state *state) {
    int64_t width = het_width(step->dtype), most = run->slot_bytes / width;
    int64_t count = step->count - state->done < most ? step->count - state->done : most;
    size_t bytes = (size_t)(count * width);
    int32_t found = 1, n_in = 0, n_out = 0;
    int passes_on = any_wire(step->sources, step->n_sources);
    struct het_held *out = run->held + run->plan->max_sources;
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
            het_drop(&run->held[n_in].link->rx_busy);
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
        if (out[i].link) het_drop(&out[i].link->tx_busy);
    for (int32_t i = 0; i < n_in; i++) {
        if (!run->held[i].link) continue;
        /* What cannot be used for long makes room for what stands behind it. */
        unsigned char *unused;
        int32_t peer = step->sources[i].peer;
        if (run->stuck >= SPILL && !run->held[i].spilled && spill(run, peer, het_link_head(run->held[i].link, &unused)))
            found = het_run_fail(run, HET_MEMORY, peer);
        het_drop(&run->held[i].link->rx_busy);
    }
    return found;
}
