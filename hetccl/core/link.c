#include "link.h"

#include "hetccl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

size_t het_ring_size(uint32_t slots, uint32_t slot_bytes) { return het_ring_bytes(slots, slot_bytes); }

static struct het_link *new_link(void) {
    struct het_link *link = aligned_alloc(HET_LINE, (sizeof *link + HET_LINE - 1) / HET_LINE * HET_LINE);
    if (!link) return NULL;
    memset(link, 0, sizeof *link);
    link->spilled_end = &link->spilled;
    atomic_flag_clear(&link->tx_busy);
    atomic_flag_clear(&link->rx_busy);
    return link;
}

struct het_link *het_link_open_shm(void *tx_memory, void *rx_memory, uint32_t slots, uint32_t slot_bytes) {
    struct het_link *link = new_link();
    if (!link) return NULL;
    link->tx = het_ring_over(tx_memory, slots, slot_bytes);
    link->rx = het_ring_over(rx_memory, slots, slot_bytes);
    return link;
}

struct het_link *het_link_open_tcp(const int32_t *fds, int32_t stripes, uint32_t slots, uint32_t slot_bytes) {
    if (stripes < 1 || stripes > HET_STRIPES) return NULL;
    size_t bytes = (het_ring_bytes(slots, slot_bytes) + HET_LINE - 1) / HET_LINE * HET_LINE;
    struct het_link *link = new_link();
    unsigned char *memory = link ? aligned_alloc(HET_LINE, 2 * bytes) : NULL;
    if (!memory) {
        free(link);
        return NULL;
    }
    memset(memory, 0, 2 * bytes);
    link->memory = memory;
    link->tx = het_ring_over(memory, slots, slot_bytes);
    link->rx = het_ring_over(memory + bytes, slots, slot_bytes);
    link->stripes = stripes;
    for (int i = 0; i < stripes; i++) {
        link->stripe[i].fd = fds[i];
        link->stripe[i].sending = (uint64_t)i + 1;
        link->stripe[i].receiving = (uint64_t)i + 1;
    }
    return link;
}

void het_link_close(struct het_link *link) {
    while (link->spilled) het_link_drop_spilled(link, &link->spilled);
    free(link->memory);
    free(link);
}

void het_link_kill(struct het_link *link, int32_t code) { atomic_store(&link->dead, code); }

struct het_line *het_link_reserve(struct het_link *link, uint32_t bytes, uint32_t leave, unsigned char **payload) {
    uint64_t message = link->tx_last + 1;
    if (message + leave - atomic_load_explicit(link->tx.consumed, memory_order_acquire) > link->tx.slots) return NULL;
    struct het_line *line = het_ring_line(&link->tx, message);
    line->bytes = bytes;
    line->protocol = HET_PROTOCOL;
    *payload = het_ring_payload(&link->tx, message);
    return line;
}

void het_link_commit(struct het_link *link) {
    uint64_t message = ++link->tx_last;
    atomic_store_explicit(&het_ring_line(&link->tx, message)->ready, message, memory_order_release);
}

struct het_line *het_link_head(struct het_link *link, unsigned char **payload) {
    uint64_t message = link->rx_last + 1;
    struct het_line *line = het_ring_line(&link->rx, message);
    if (atomic_load_explicit(&line->ready, memory_order_acquire) != message) return NULL;
    *payload = het_ring_payload(&link->rx, message);
    return line;
}

void het_link_release(struct het_link *link) {
    atomic_store_explicit(link->rx.consumed, ++link->rx_last, memory_order_release);
}

struct het_spilled **het_link_find_spilled(struct het_link *link, uint64_t channel) {
    for (struct het_spilled **at = &link->spilled; *at; at = &(*at)->next)
        if ((*at)->line.channel == channel) return at;
    return NULL;
}

void het_link_drop_spilled(struct het_link *link, struct het_spilled **at) {
    struct het_spilled *gone = *at;
    *at = gone->next;
    if (link->spilled_end == &gone->next) link->spilled_end = at;
    link->spilled_bytes -= gone->line.bytes;
    free(gone);
}

int het_link_spill(struct het_link *link, uint16_t kind) {
    unsigned char *payload;
    struct het_line *line = het_link_head(link, &payload);
    struct het_spilled *spilled = malloc(sizeof *spilled + line->bytes);
    if (!spilled) return -1;
    spilled->next = NULL;
    memcpy(&spilled->line, line, sizeof *line);
    spilled->line.kind = kind;
    memcpy(spilled->payload, payload, line->bytes);
    *link->spilled_end = spilled;
    link->spilled_end = &spilled->next;
    link->spilled_bytes += line->bytes;
    het_link_release(link);
    return 0;
}

/* ---- tcp: a message travels as its line, followed by what is not in the line ---- */

static size_t beyond_line(const struct het_line *line) { return line->bytes <= HET_SMALL ? 0 : line->bytes; }

static int would_wait(ssize_t moved) { return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

static void pump_out(struct het_link *link, struct het_stripe *stripe) {
    while (stripe->sending <= link->tx_last) {
        struct het_line *line = het_ring_line(&link->tx, stripe->sending);
        if (atomic_load_explicit(&line->ready, memory_order_acquire) != stripe->sending) return;
        size_t whole = HET_LINE + beyond_line(line), in_line = stripe->sent < HET_LINE ? HET_LINE - stripe->sent : 0;
        struct iovec parts[2] = {
            {(unsigned char *)line + stripe->sent, in_line},
            {het_ring_payload(&link->tx, stripe->sending) + (stripe->sent + in_line - HET_LINE), whole - stripe->sent - in_line},
        };
        struct msghdr message = {.msg_iov = in_line ? parts : parts + 1, .msg_iovlen = in_line ? 2 : 1};
        ssize_t moved = sendmsg(stripe->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (moved < 0) {
            if (!would_wait(moved)) atomic_store(&link->dead, errno);
            return;
        }
        stripe->sent += (size_t)moved;
        if (stripe->sent < whole) return;
        stripe->sent = 0;
        stripe->sending += (uint64_t)link->stripes;
        uint64_t done = stripe->sending;
        for (int i = 0; i < link->stripes; i++)
            if (link->stripe[i].sending < done) done = link->stripe[i].sending;
        atomic_store_explicit(link->tx.consumed, done - 1, memory_order_release);
    }
}

static void pump_in(struct het_link *link, struct het_stripe *stripe) {
    while (!stripe->ended && stripe->receiving - link->rx_last <= link->rx.slots) {
        struct het_line *incoming = &stripe->incoming;
        unsigned char *to = (unsigned char *)incoming + stripe->received;
        size_t want = HET_LINE - stripe->received;
        if (stripe->received >= HET_LINE) {
            uint64_t slot = (stripe->receiving - 1) % link->rx.slots;
            to = link->rx.payload + slot * link->rx.slot_bytes + (stripe->received - HET_LINE);
            want = HET_LINE + incoming->bytes - stripe->received;
        }
        ssize_t moved = recv(stripe->fd, to, want, MSG_DONTWAIT);
        if (moved <= 0) {
            if (would_wait(moved)) return;
            atomic_store(&link->dead, moved ? errno : ECONNRESET);
            stripe->ended = 1;
            return;
        }
        stripe->received += (size_t)moved;
        if (stripe->received == HET_LINE && (incoming->protocol != HET_PROTOCOL || incoming->bytes > link->rx.slot_bytes ||
                                             (incoming->kind != HET_DATA && incoming->kind != HET_CREDIT))) {
            atomic_store(&link->dead, EPROTO);
            stripe->ended = 1;
            return;
        }
        if (stripe->received < HET_LINE || stripe->received < HET_LINE + beyond_line(incoming)) continue;
        struct het_line *line = het_ring_line(&link->rx, stripe->receiving);
        memcpy((unsigned char *)line + sizeof line->ready, (unsigned char *)incoming + sizeof line->ready, HET_LINE - sizeof line->ready);
        atomic_store_explicit(&line->ready, stripe->receiving, memory_order_release);
        stripe->received = 0;
        stripe->receiving += (uint64_t)link->stripes;
    }
}

void het_link_pump(struct het_link *link) {
    if (!link->stripes) return;
    int dead = atomic_load_explicit(&link->dead, memory_order_relaxed);
    if (!dead && !atomic_flag_test_and_set_explicit(&link->tx_busy, memory_order_acquire)) {
        for (int i = 0; i < link->stripes; i++) pump_out(link, &link->stripe[i]);
        atomic_flag_clear_explicit(&link->tx_busy, memory_order_release);
    }
    if (!atomic_flag_test_and_set_explicit(&link->rx_busy, memory_order_acquire)) {
        for (int i = 0; i < link->stripes; i++) pump_in(link, &link->stripe[i]);
        atomic_flag_clear_explicit(&link->rx_busy, memory_order_release);
    }
}
