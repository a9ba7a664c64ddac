/* A link: the way to one peer process, a ring in each direction. */
#ifndef HET_LINK_H
#define HET_LINK_H

#include "ring.h"

#include <stdatomic.h>

enum { HET_STRIPES = 8 };

/* A message that was taken off the ring before anybody wanted it. */
struct het_spilled {
    struct het_spilled *next;
    struct het_line line;
    unsigned char payload[];
};

/* A socket of a tcp link: it carries messages stripe, stripe + stripes, ... */
struct het_stripe {
    int fd;
    _Atomic uint64_t sending;    /* the message under way; read by threads that rest, too */
    uint64_t receiving;
    size_t sent, received;       /* bytes of it, its line included */
    int ended;                   /* nothing will arrive any more */
    struct het_line incoming;
};

struct het_link {
    struct het_ring tx, rx;
    atomic_flag tx_busy, rx_busy;   /* held by the thread that fills or reads a slot; only ever tried */
    _Atomic uint64_t tx_last;       /* messages committed; read by threads that flush, too */
    uint64_t rx_last;               /* messages released */
    struct het_spilled *spilled, **spilled_end;
    size_t spilled_bytes;
    _Atomic int dead;               /* an errno once the peer cannot be reached any more */
    int stripes;                    /* 0: shm */
    struct het_stripe stripe[HET_STRIPES];
    void *memory;                   /* a tcp link's rings */
};

/* Move bytes between rings and sockets, as far as they go without waiting; nothing to do for shm. Sets `dead` on failure.
 * From a dead peer what had arrived is still taken: it may be all that is needed. */
void het_link_pump(struct het_link *link);

/* A free slot to fill, or NULL where no more than `leave` are free. The caller holds tx_busy; het_link_commit publishes it. */
struct het_line *het_link_reserve(struct het_link *link, uint32_t bytes, uint32_t leave, unsigned char **payload);
void het_link_commit(struct het_link *link);

/* The oldest message on the ring, or NULL. The caller holds rx_busy; het_link_release frees its slot. */
struct het_line *het_link_head(struct het_link *link, unsigned char **payload);
void het_link_release(struct het_link *link);

/* The oldest spilled message of a channel (0 where there is none), and how it is dropped. The caller holds rx_busy. */
struct het_spilled **het_link_find_spilled(struct het_link *link, uint64_t channel);
void het_link_drop_spilled(struct het_link *link, struct het_spilled **at);

/* Move the head of the ring to the spilled messages, as one of this kind. Returns 0, or -1 without memory. The caller holds
 * rx_busy. */
int het_link_spill(struct het_link *link, uint16_t kind);

#endif
