#include "group.h"

#include "hetccl.h"

#include <pthread.h>
#include <stdlib.h>

enum { BUCKETS = 256, REMEMBERED = 1024 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct het_group *groups[BUCKETS];
static uint64_t over[REMEMBERED]; /* the ids that were closed last, each plus one */
static uint32_t n_over;

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

/* A child must not inherit the lock from a thread that it does not have. */
__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(before_fork, after_fork, after_fork); }

static struct het_group **bucket(uint64_t id) { return &groups[(id ^ (id >> 17)) % BUCKETS]; }

struct het_group *het_group_open(uint64_t id, int32_t rank, int32_t size) {
    if (id >> (64 - HET_LANE_BITS) || size < 1 || rank < 0 || rank >= size) return NULL;
    struct het_group *group = calloc(1, sizeof *group);
    struct het_peer *peers = calloc((size_t)size, sizeof *peers);
    if (!group || !peers) {
        free(group);
        free(peers);
        return NULL;
    }
    group->id = id;
    group->rank = rank;
    group->size = size;
    group->peers = peers;
    group->last = &group->first;
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->changed, NULL);
    pthread_mutex_lock(&lock);
    group->next = *bucket(id);
    *bucket(id) = group;
    pthread_mutex_unlock(&lock);
    return group;
}

void het_group_connect(struct het_group *group, int32_t peer, struct het_link *link) { group->peers[peer].link = link; }

static void drop_spilled(struct het_link *link, uint64_t id) {
    while (atomic_flag_test_and_set_explicit(&link->rx_busy, memory_order_acquire)) {
    }
    for (struct het_spilled **at = &link->spilled; *at;)
        if ((*at)->line.channel >> HET_LANE_BITS == id) het_link_drop_spilled(link, at);
        else at = &(*at)->next;
    atomic_flag_clear_explicit(&link->rx_busy, memory_order_release);
}

void het_group_close(struct het_group *group) {
    het_abort(group);
    pthread_mutex_lock(&group->lock);
    group->closed = 1;
    while (group->running || group->first) pthread_cond_wait(&group->changed, &group->lock);
    pthread_mutex_unlock(&group->lock);
    pthread_mutex_lock(&lock);
    for (struct het_group **at = bucket(group->id); *at; at = &(*at)->next)
        if (*at == group) {
            *at = group->next;
            break;
        }
    over[n_over++ % REMEMBERED] = group->id + 1;
    pthread_mutex_unlock(&lock);
    for (int32_t r = 0; r < group->size; r++)
        if (group->peers[r].link) drop_spilled(group->peers[r].link, group->id);
}

void het_group_free(struct het_group *group) {
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    free(group->peers);
    free(group->arena);
    free(group->scratch);
    free(group);
}

int het_group_is_over(uint64_t id) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < REMEMBERED && !found; i++) found = over[i] == id + 1;
    for (struct het_group *group = *bucket(id); group && found; group = group->next) found = group->id != id;
    pthread_mutex_unlock(&lock);
    return found;
}

void het_abort(struct het_group *group) { atomic_store(&group->aborted, 1); }

void het_group_credit(uint64_t id, int32_t rank, int32_t credits) {
    pthread_mutex_lock(&lock);
    for (struct het_group *group = *bucket(id); group; group = group->next)
        if (group->id == id && rank >= 0 && rank < group->size)
            atomic_fetch_sub_explicit(&group->peers[rank].under_way, credits, memory_order_acq_rel);
    pthread_mutex_unlock(&lock);
}
