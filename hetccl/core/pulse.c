#include "hetccl.h"
#include "run.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The control connections: who is alive, and what they tell of groups that were aborted. They have a thread of their own, so
 * that a process is alive for its peers as long as it runs at all, whatever its other threads do.
 *
 * A frame: kind (1 byte), group (8), bytes of text (4), in network order, and the text. */

enum { FRAME = 13, BEAT = 1, ABORT = 2 };

struct bytes {
    unsigned char *at;
    size_t used, room;
};

struct event {
    struct event *next;
    uint64_t peer, group;
    int32_t kind, code;
    uint32_t bytes;
    char text[];
};

struct peer {
    struct peer *next;
    uint64_t id;
    int fd;
    int64_t limit, beat;      /* nanoseconds */
    int64_t heard, next_beat; /* the thread's alone, and so is `in` */
    struct bytes in, out;
    struct event *lost; /* made beforehand, so that it can be told of without memory */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows, and of what peers are to be sent */
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static struct peer *peers;
static nfds_t n_peers;
static struct event *first, **last = &first;
static uint64_t last_id;
static int wake = -1;

static unsigned char *append(struct bytes *bytes, size_t more) {
    if (bytes->used + more > bytes->room) {
        unsigned char *at = realloc(bytes->at, 2 * (bytes->used + more));
        if (!at) return NULL;
        bytes->at = at;
        bytes->room = 2 * (bytes->used + more);
    }
    return bytes->at + bytes->used;
}

static void drop(struct bytes *bytes, size_t done) {
    memmove(bytes->at, bytes->at + done, bytes->used - done);
    bytes->used -= done;
}

static void tell(struct event *event) {
    event->next = NULL;
    *last = event;
    last = &event->next;
    pthread_cond_signal(&told);
}

/* As much as goes without waiting. A broken connection is noticed by reading. */
static void flush(struct peer *peer) {
    ssize_t sent = peer->out.used ? send(peer->fd, peer->out.at, peer->out.used, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent > 0) drop(&peer->out, (size_t)sent);
}

static void put_frame(struct peer *peer, unsigned char kind, uint64_t group, const char *text, uint32_t bytes) {
    unsigned char *to = append(&peer->out, FRAME + bytes);
    if (!to) return;
    uint64_t wide = htobe64(group);
    uint32_t size = htobe32(bytes);
    to[0] = kind;
    memcpy(to + 1, &wide, sizeof wide);
    memcpy(to + 9, &size, sizeof size);
    if (bytes) memcpy(to + FRAME, text, bytes);
    peer->out.used += FRAME + bytes;
}

/* ---- the thread ---- */

static void lose(struct peer *peer, int code) {
    pthread_mutex_lock(&lock);
    for (struct peer **at = &peers; *at; at = &(*at)->next)
        if (*at == peer) {
            *at = peer->next;
            break;
        }
    n_peers--;
    peer->lost->code = code;
    tell(peer->lost);
    pthread_mutex_unlock(&lock);
    free(peer->in.at);
    free(peer->out.at);
    free(peer);
}

/* Take whole frames off what arrived. 0, or an errno. */
static int take_frames(struct peer *peer) {
    while (peer->in.used >= FRAME) {
        uint64_t group;
        uint32_t bytes;
        memcpy(&group, peer->in.at + 1, sizeof group);
        memcpy(&bytes, peer->in.at + 9, sizeof bytes);
        bytes = be32toh(bytes);
        if (bytes > HET_TEXT) return EPROTO;
        if (peer->in.used < FRAME + bytes) return 0;
        struct event *event = peer->in.at[0] == ABORT ? malloc(sizeof *event + bytes) : NULL;
        if (event) {
            *event = (struct event){.peer = peer->id, .group = be64toh(group), .kind = HET_EVENT_ABORT, .bytes = bytes};
            memcpy(event->text, peer->in.at + FRAME, bytes);
            pthread_mutex_lock(&lock);
            tell(event);
            pthread_mutex_unlock(&lock);
        }
        drop(&peer->in, FRAME + bytes);
    }
    return 0;
}

/* 0, or an errno: the peer is gone. */
static int hear(struct peer *peer, int64_t time) {
    enum { PIECE = 4096 };
    unsigned char *to = append(&peer->in, PIECE);
    if (!to) return ENOMEM;
    ssize_t got = recv(peer->fd, to, PIECE, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
    if (!got) return ECONNRESET;
    peer->heard = time;
    peer->in.used += (size_t)got;
    return take_frames(peer);
}

static void beat(struct peer *peer, int64_t time) {
    if (time >= peer->next_beat) {
        peer->next_beat = time + peer->beat;
        pthread_mutex_lock(&lock);
        if (!peer->out.used) put_frame(peer, BEAT, 0, NULL, 0); /* else what still has to go tells as much */
        flush(peer);
        pthread_mutex_unlock(&lock);
    }
}

struct table {
    struct pollfd *fds;
    struct peer **peers;
    nfds_t room;
};

/* Those who are there now, and when the first of them is to get a beat. Returns their number. */
static nfds_t look(struct table *table, int64_t *next_beat) {
    pthread_mutex_lock(&lock);
    if (n_peers + 1 > table->room) {
        nfds_t room = 2 * (n_peers + 1);
        struct pollfd *fds = realloc(table->fds, room * sizeof *fds);
        if (fds) table->fds = fds;
        struct peer **rows = realloc(table->peers, room * sizeof *rows);
        if (rows) table->peers = rows;
        if (fds && rows) table->room = room;
    }
    nfds_t n = 0;
    for (struct peer *peer = peers; peer && n + 1 < table->room; peer = peer->next) {
        if (peer->next_beat < *next_beat) *next_beat = peer->next_beat;
        table->fds[n] = (struct pollfd){.fd = peer->fd, .events = (short)(peer->out.used ? POLLIN | POLLOUT : POLLIN)};
        table->peers[n++] = peer;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static void *serve(void *nothing) {
    struct table table = {NULL, NULL, 0};
    for (int64_t turn = het_now();;) {
        int64_t next_beat = turn + 1000000000;
        nfds_t n = look(&table, &next_beat);
        if (!table.room) { /* without memory there is nothing but to try again */
            (void)poll(NULL, 0, 10);
            continue;
        }
        table.fds[n] = (struct pollfd){.fd = wake, .events = POLLIN};
        int64_t pause = next_beat - het_now();
        struct timespec until = {pause > 0 ? pause / 1000000000 : 0, pause > 0 ? pause % 1000000000 : 0};
        (void)ppoll(table.fds, n + 1, &until, NULL);
        uint64_t times;
        if (table.fds[n].revents) (void)!read(wake, &times, sizeof times);
        int64_t time = het_now(), since = time - turn;
        turn = time;
        for (nfds_t i = 0; i < n; i++) {
            struct peer *peer = table.peers[i];
            int code = table.fds[i].revents & ~POLLOUT ? hear(peer, time) : 0;
            /* Where this thread itself was stopped for long, peers are not to blame: what they sent is read first. */
            if (!code && since < peer->limit / 2 && time - peer->heard > peer->limit) code = ETIMEDOUT;
            if (code) lose(peer, code);
            else beat(peer, time);
        }
    }
    return nothing;
}

static void wake_up(void) {
    uint64_t once = 1;
    (void)!write(wake, &once, sizeof once);
}

uint64_t het_pulse_add(int32_t fd, int64_t beat_every, int64_t limit) {
    struct peer *peer = calloc(1, sizeof *peer);
    struct event *lost = calloc(1, sizeof *lost);
    int64_t time = het_now();
    pthread_mutex_lock(&lock);
    pthread_t thread;
    if (wake < 0 && (wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) >= 0) {
        if (pthread_create(&thread, NULL, serve, NULL)) close(wake), wake = -1;
        else (void)pthread_detach(thread);
    }
    uint64_t id = peer && lost && wake >= 0 ? ++last_id : 0;
    if (id) {
        *lost = (struct event){.peer = id, .kind = HET_EVENT_LOST};
        *peer = (struct peer){peers, id, fd, limit, beat_every, time, time, {0}, {0}, lost};
        peers = peer;
        n_peers++;
        wake_up();
    }
    pthread_mutex_unlock(&lock);
    if (id) return id;
    free(peer);
    free(lost);
    return 0;
}

void het_pulse_tell(uint64_t id, uint64_t group, const char *text, uint32_t bytes) {
    pthread_mutex_lock(&lock);
    for (struct peer *peer = peers; peer; peer = peer->next) {
        if (peer->id != id) continue;
        put_frame(peer, ABORT, group, text, bytes < HET_TEXT ? bytes : HET_TEXT);
        flush(peer);
        if (peer->out.used) wake_up();
    }
    pthread_mutex_unlock(&lock);
}

void het_pulse_next(struct het_event *event) {
    pthread_mutex_lock(&lock);
    while (!first) pthread_cond_wait(&told, &lock);
    struct event *next = first;
    if (!(first = next->next)) last = &first;
    pthread_mutex_unlock(&lock);
    event->peer = next->peer;
    event->group = next->group;
    event->kind = next->kind;
    event->code = next->code;
    event->bytes = next->bytes;
    memcpy(event->text, next->text, next->bytes);
    free(next);
}
