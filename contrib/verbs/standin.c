// A stand-in for libibverbs.so.1 on machines without RDMA: devices of all processes of one machine reach each other
// through shared memory. Only what gorun uses exists: reliable connected queue pairs, writes with immediate data,
// completion channels, asynchronous events. The structures are the real ones. Unlike a device,
// it makes an event of each message of the peer, even if the program has requested no notification.
//
// The processes share a directory, best in /dev/shm: the macro DIRECTORY, or else the environment variable
// VERBS_STANDIN; without either there is no device. Files in it make faults:
//
//	kill     N: of queue pairs that are connected from then on, one in N writes breaks its pair, with various errors
//	event    N: of queue pairs that are connected from then on, one in N writes ends its pair: that makes an event of the pair,
//	         but no completion, and the pair carries nothing any more
//	late     N: of queue pairs that are connected from then on, one in N polls has all completions that are not yet polled
//	         come up to 2 ms later, after those of other pairs
//	down     the port is down while it is there, which makes an event, and nothing arrives
//	gone     the device is removed while it is there, which makes an event
//	sysfs    stands for the device's directory in sysfs: that it is removed makes no event
//	gids     N: as many entries of the table of GIDs are empty before the others; that makes an event
//	subnet   N: no packet reaches a host whose address has other N bits at its beginning
//	without  addresses of hosts that have no device
//	denied   addresses of hosts whose users may not open it
//	hang     ibv_get_device_list never returns
//	crash    ibv_get_device_list calls abort
//	tuned    takes a line of what each pair is connected with: class, hops, MTU and index of the GID, or timeout, retries, RNR
//	memlock  registered memory counts against the limit of locked memory, as it does for users other than root
//
// The number of a queue pair, or of memory, ends with the last byte of its host's first address, and so does the name of
// its file. One byte for each queue pair that "kill" has broken is appended to the file killed.
//
// A host's GIDs are made of its IPv4 addresses, as with RoCE v2. Registered memory becomes a file of the directory that
// peers map: registering replaces the pages by shared ones. A queue pair is a FIFO that its peer writes 16 bytes to
// for every message. One completion queue serves one queue pair.
//
//	cc -shared -fPIC -O2 -o libibverbs.so.1 contrib/verbs/standin.c
#define _GNU_SOURCE
#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

#define MOST 256 // completions that wait in a queue, and addresses of a host

// message is what a FIFO carries.
struct message {
	uint32_t from;
	uint32_t length;
	uint32_t imm;
	uint32_t unused;
};

// region is a registered piece of memory; its file begins with this page.
struct region {
	uint64_t address;
	uint64_t length;
	uint64_t access; // as ibv_access_flags
};
#define HEADER 4096

struct queue {
	struct ibv_cq cq;
	pthread_mutex_t lock;
	struct ibv_wc done[MOST];
	int first, count;
	int armed;
	int signal; // an eventfd
	int signalled; // it can be read
	int timer;  // a timerfd
	int late;   // completions come when the timer is over
	struct pair *pair;
};

struct pair {
	struct ibv_qp qp;
	struct queue *queue;
	int state; // as ibv_qp_state; IBV_QPS_ERR is final
	int in, out;
	uint32_t peer;
	uint64_t receives[MOST];
	int first, count;
	int most;
	uint32_t kill; // one in so many writes breaks it, 0 for none
	uint32_t event; // one in so many writes makes an event of it, 0 for none
	uint32_t late; // one in so many polls comes later, 0 for none
	int ended; // it has made an event
	int unacknowledged; // events that the program has got and not acknowledged
	int unreached; // the peer is in another subnet
	// The peer's ring.
	uint32_t key;
	struct region *ring;
	size_t mapped;
};

struct memory {
	struct ibv_mr mr;
	char path[PATH_MAX];
};

static struct ibv_device the_device = {.name = "standin0", .dev_name = "standin0"};

#ifndef DIRECTORY
#define DIRECTORY getenv("VERBS_STANDIN")
#endif

static const char *directory(void) { return DIRECTORY; }

static void path_of(char *path, const char *kind, uint32_t number)
{
	snprintf(path, PATH_MAX, "%s/%s-%08x", directory(), kind, number);
}

static int exists(const char *name)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", directory(), name);
	return access(path, F_OK) == 0;
}

// number_in returns the number in a file, 0 if there is none.
static uint32_t number_in(const char *name)
{
	char path[PATH_MAX];
	unsigned int n = 0;
	snprintf(path, sizeof path, "%s/%s", directory(), name);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%u", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

// names_us reports whether a file has one of this host's addresses.
static int names_us(const char *name)
{
	char path[PATH_MAX], word[64];
	int found = 0;
	struct ifaddrs *all;
	snprintf(path, sizeof path, "%s/%s", directory(), name);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	if (!getifaddrs(&all)) {
		while (fscanf(f, "%63s", word) == 1)
			for (struct ifaddrs *a = all; a; a = a->ifa_next)
				if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
				    ((struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr == inet_addr(word))
					found = 1;
		freeifaddrs(all);
	}
	fclose(f);
	return found;
}

// host returns the last byte of this host's first address, except loopback.
static uint32_t host(void)
{
	uint32_t last = 0;
	struct ifaddrs *all;
	if (getifaddrs(&all))
		return 0;
	for (struct ifaddrs *a = all; a && !last; a = a->ifa_next)
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && !(a->ifa_flags & IFF_LOOPBACK))
			last = ntohl(((struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr) & 0xff;
	freeifaddrs(all);
	return last;
}

static volatile int port_is_down;

static uint32_t random_number(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t state;
	pthread_mutex_lock(&lock);
	if (state == 0) {
		if (getentropy(&state, sizeof state) || state == 0)
			state = (uint64_t)getpid();
	}
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	uint32_t r = (uint32_t)(state >> 32);
	pthread_mutex_unlock(&lock);
	return r;
}

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(2, sizeof *list);
	*count = 0;
	if (directory() && exists("crash"))
		abort();
	while (directory() && exists("hang"))
		sleep(1);
	if (list && directory() && !exists("gone") && !names_us("without")) {
		snprintf(the_device.dev_path, sizeof the_device.dev_path, "%s/sysfs", directory());
		list[(*count)++] = &the_device;
	}
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

// addresses fills in the GIDs of this host: the first is link-local, the others are its IPv4 addresses.
static int addresses(union ibv_gid *gids)
{
	int n = (int)(number_in("gids") % (MOST / 2));
	memset(gids, 0, MOST * sizeof *gids);
	gids[n].raw[0] = 0xfe;
	gids[n++].raw[1] = 0x80;
	struct ifaddrs *all;
	if (getifaddrs(&all))
		return n;
	for (struct ifaddrs *a = all; a && n < MOST; a = a->ifa_next) {
		if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET)
			continue;
		memset(gids[n].raw + 10, 0xff, 2);
		memcpy(gids[n++].raw + 12, &((struct sockaddr_in *)a->ifa_addr)->sin_addr, 4);
	}
	freeifaddrs(all);
	return n;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	memset(attr, 0, sizeof *attr);
	attr->phys_port_cnt = 1;
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat)
{
	(void)context;
	union ibv_gid gids[MOST];
	if (port != 1)
		return EINVAL;
	struct ibv_port_attr *attr = (void *)compat;
	attr->state = exists("down") ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = addresses(gids);
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t size)
{
	(void)context;
	union ibv_gid gids[MOST];
	if (port != 1 || flags || size != sizeof *entry || index >= (uint32_t)addresses(gids))
		return EINVAL;
	if (!gids[index].global.subnet_prefix && !gids[index].global.interface_id)
		return ENODATA;
	*entry = (struct ibv_gid_entry){.gid = gids[index], .gid_index = index, .port_num = port,
					.gid_type = gids[index].raw[0] ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2};
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	if (pd)
		pd->context = context;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

static pthread_mutex_t lock_of_locked = PTHREAD_MUTEX_INITIALIZER;
static size_t locked; // bytes of registered memory

// lock_memory counts registered memory, and returns 0 if the process may not lock that much.
static int lock_memory(size_t length)
{
	struct rlimit limit;
	int fits = 1;
	pthread_mutex_lock(&lock_of_locked);
	if (exists("memlock") && !getrlimit(RLIMIT_MEMLOCK, &limit))
		fits = limit.rlim_cur == RLIM_INFINITY || locked + length <= limit.rlim_cur;
	if (fits)
		locked += length;
	pthread_mutex_unlock(&lock_of_locked);
	return fits;
}

static void unlock_memory(size_t length)
{
	pthread_mutex_lock(&lock_of_locked);
	locked -= length;
	pthread_mutex_unlock(&lock_of_locked);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	if ((uintptr_t)address % HEADER || length % HEADER) {
		errno = EINVAL;
		return NULL;
	}
	if (!lock_memory(length)) {
		errno = ENOMEM;
		return NULL;
	}
	struct memory *m = calloc(1, sizeof *m);
	if (!m)
		abort();
	int file;
	do {
		m->mr.rkey = m->mr.lkey = (random_number() & ~0xffu) | host();
		path_of(m->path, "memory", m->mr.rkey);
		file = open(m->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	} while (file < 0 && errno == EEXIST);
	struct region region = {(uintptr_t)address, length, (uint64_t)access};
	int failed = file < 0 || ftruncate(file, (off_t)(HEADER + length)) ||
		     pwrite(file, &region, sizeof region, 0) != sizeof region ||
		     pwrite(file, address, length, HEADER) != (ssize_t)length ||
		     mmap(address, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, HEADER) == MAP_FAILED;
	int reason = errno;
	if (file >= 0)
		close(file);
	if (failed) {
		unlink(m->path);
		free(m);
		unlock_memory(length);
		errno = reason;
		return NULL;
	}
	m->mr.context = pd->context;
	m->mr.pd = pd;
	m->mr.addr = address;
	m->mr.length = length;
	return &m->mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct memory *m = (struct memory *)mr;
	unlink(m->path);
	unlock_memory(mr->length);
	free(m);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
	if (!channel)
		return NULL;
	channel->context = context;
	channel->fd = epoll_create1(EPOLL_CLOEXEC);
	return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

static void listen_to(struct ibv_comp_channel *channel, int fd, void *cq)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = cq};
	epoll_ctl(channel->fd, EPOLL_CTL_ADD, fd, &event);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context, struct ibv_comp_channel *channel,
			     int vector)
{
	(void)vector;
	struct queue *q = calloc(1, sizeof *q);
	if (!q || entries > MOST) {
		free(q);
		errno = EINVAL;
		return NULL;
	}
	q->cq.context = context;
	q->cq.channel = channel;
	q->cq.cq_context = cq_context;
	pthread_mutex_init(&q->lock, NULL);
	q->signal = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	q->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	listen_to(channel, q->signal, q);
	listen_to(channel, q->timer, q);
	return &q->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct queue *q = (struct queue *)cq;
	if (q->pair)
		return EBUSY;
	close(q->signal);
	close(q->timer);
	free(q);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct epoll_event event;
	if (epoll_wait(channel->fd, &event, 1, 0) != 1) {
		errno = EAGAIN;
		return -1;
	}
	struct queue *q = event.data.ptr;
	uint64_t taken;
	pthread_mutex_lock(&q->lock);
	if (q->signalled && read(q->signal, &taken, sizeof taken) < 0)
		abort();
	q->signalled = 0;
	pthread_mutex_unlock(&q->lock);
	*cq = &q->cq;
	*cq_context = q->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	(void)cq;
	(void)n;
}

// complete adds a completion. The queue's lock is held.
static void complete(struct queue *q, uint64_t id, int status, int opcode, uint32_t length, uint32_t imm)
{
	if (q->count == MOST)
		abort(); // a real queue would be lost
	struct ibv_wc *wc = &q->done[(q->first + q->count++) % MOST];
	*wc = (struct ibv_wc){.wr_id = id, .status = status, .opcode = opcode, .byte_len = length, .imm_data = imm,
			      .qp_num = q->pair->qp.qp_num, .wc_flags = opcode == IBV_WC_RECV_RDMA_WITH_IMM ? IBV_WC_WITH_IMM : 0};
	if (q->armed) {
		uint64_t one = 1;
		q->armed = 0;
		q->signalled = 1;
		if (write(q->signal, &one, sizeof one) < 0)
			abort();
	}
}

// fail puts the pair into its error state. What is posted is flushed. The queue's lock is held.
static void fail(struct pair *p)
{
	char path[PATH_MAX];
	if (p->state == IBV_QPS_ERR)
		return;
	p->state = IBV_QPS_ERR;
	path_of(path, "pair", p->qp.qp_num);
	unlink(path);
	close(p->in); // the peer's next write finds no reader
	p->in = -1;
	if (p->out >= 0)
		close(p->out);
	p->out = -1;
	for (; p->count; p->count--)
		complete(p->queue, p->receives[p->first++ % MOST], IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0, 0);
}

// is_late reports whether completions come later: once it has chosen so, until the timer is over. Meanwhile the channel
// does not listen to the FIFO. The queue's lock is held.
static int is_late(struct queue *q)
{
	struct pair *p = q->pair;
	uint64_t over;
	if (q->late) {
		if (read(q->timer, &over, sizeof over) != sizeof over)
			return 1;
		q->late = 0;
		if (p && p->in >= 0)
			listen_to(q->cq.channel, p->in, q);
		return 0;
	}
	if (!p || p->in < 0 || !p->late || random_number() % p->late)
		return 0;
	struct itimerspec after = {.it_value.tv_nsec = 1 + random_number() % 2000000};
	epoll_ctl(q->cq.channel->fd, EPOLL_CTL_DEL, p->in, NULL);
	timerfd_settime(q->timer, 0, &after, NULL);
	return q->late = 1;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *into)
{
	struct queue *q = (struct queue *)cq;
	pthread_mutex_lock(&q->lock);
	struct pair *p = q->pair;
	struct message arrived[MOST];
	if (is_late(q)) {
		pthread_mutex_unlock(&q->lock);
		return 0;
	}
	ssize_t got = 0; // bytes of whole messages, as they were written
	if (p && p->state != IBV_QPS_ERR && q->count < most)
		got = read(p->in, arrived, ((most < MOST ? most : MOST) - q->count) * sizeof *arrived);
	if (got < 0)
		got = 0;
	for (struct message *m = arrived; (char *)m < (char *)arrived + got; m++) {
		if (!p->count) {
			fprintf(stderr, "stand-in: queue pair %#x has no receive posted\n", p->qp.qp_num);
			fail(p);
			break;
		}
		complete(q, p->receives[p->first++ % MOST], IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, m->length, m->imm);
		p->count--;
	}
	int n = 0;
	for (; n < most && q->count; n++, q->count--)
		into[n] = q->done[q->first++ % MOST];
	pthread_mutex_unlock(&q->lock);
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)solicited;
	struct queue *q = (struct queue *)cq;
	pthread_mutex_lock(&q->lock);
	q->armed = 1;
	pthread_mutex_unlock(&q->lock);
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct pair *p = calloc(1, sizeof *p);
	char path[PATH_MAX];
	if (!p || attr->qp_type != IBV_QPT_RC || attr->cap.max_recv_wr > MOST / 2 || attr->cap.max_send_wr > MOST / 2) {
		free(p);
		errno = EINVAL;
		return NULL;
	}
	do {
		p->qp.qp_num = (random_number() & 0xffff00) | host();
		path_of(path, "pair", p->qp.qp_num);
	} while (mkfifo(path, 0600) && errno == EEXIST);
	p->in = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (p->in < 0) {
		free(p);
		return NULL;
	}
	p->out = -1;
	p->most = attr->cap.max_recv_wr;
	p->queue = (struct queue *)attr->recv_cq;
	p->queue->pair = p;
	p->qp.context = pd->context;
	p->qp.pd = pd;
	p->qp.send_cq = attr->send_cq;
	p->qp.recv_cq = attr->recv_cq;
	p->qp.qp_type = attr->qp_type;
	listen_to(attr->recv_cq->channel, p->in, p->queue);
	return &p->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct pair *p = (struct pair *)qp;
	pthread_mutex_lock(&p->queue->lock);
	if (p->unacknowledged) {
		fprintf(stderr, "stand-in: queue pair %#x has an event that was not acknowledged\n", qp->qp_num);
		abort(); // a real one would never return
	}
	fail(p);
	p->queue->pair = NULL;
	p->queue->count = 0;
	pthread_mutex_unlock(&p->queue->lock);
	if (p->ring)
		munmap(p->ring, p->mapped);
	free(p);
	return 0;
}

// apart reports whether the file "subnet" keeps packets from one address from another.
static int apart(const union ibv_gid *a, const union ibv_gid *b)
{
	uint32_t bits = number_in("subnet"), x, y;
	memcpy(&x, a->raw + 12, 4);
	memcpy(&y, b->raw + 12, 4);
	return bits && bits <= 32 && (ntohl(x) ^ ntohl(y)) >> (32 - bits);
}

// show appends numbers to a file, if it exists.
static void show(const char *name, int a, int b, int c, int d)
{
	char path[PATH_MAX], line[64];
	snprintf(path, sizeof path, "%s/%s", directory(), name);
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC), n = snprintf(line, sizeof line, "%d %d %d %d\n", a, b, c, d);
	if (fd >= 0 && write(fd, line, n) != n)
		abort();
	if (fd >= 0)
		close(fd);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct pair *p = (struct pair *)qp;
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC;
	char path[PATH_MAX];
	union ibv_gid gids[MOST];
	int result = 0;
	pthread_mutex_lock(&p->queue->lock);
	if (attr->qp_state == IBV_QPS_INIT && p->state == IBV_QPS_RESET && mask == init && attr->port_num == 1) {
	} else if (attr->qp_state == IBV_QPS_RTR && p->state == IBV_QPS_INIT && mask == rtr && attr->ah_attr.is_global &&
		   attr->ah_attr.port_num == 1 && attr->ah_attr.grh.sgid_index < addresses(gids)) {
		path_of(path, "pair", p->peer = attr->dest_qp_num);
		p->out = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
		p->kill = number_in("kill");
		p->event = number_in("event");
		p->late = number_in("late");
		p->unreached = apart(&gids[attr->ah_attr.grh.sgid_index], &attr->ah_attr.grh.dgid);
		show("tuned", attr->ah_attr.grh.traffic_class, attr->ah_attr.grh.hop_limit, 128 << attr->path_mtu,
		     attr->ah_attr.grh.sgid_index);
	} else if (attr->qp_state == IBV_QPS_RTS && p->state == IBV_QPS_RTR && mask == rts) {
		show("tuned", attr->timeout, attr->retry_cnt, attr->rnr_retry, 0);
	} else {
		result = EINVAL;
	}
	if (!result)
		p->state = attr->qp_state;
	pthread_mutex_unlock(&p->queue->lock);
	return result;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct pair *p = (struct pair *)qp;
	int result = 0;
	pthread_mutex_lock(&p->queue->lock);
	for (; wr; wr = wr->next) {
		*bad = wr;
		if (p->state == IBV_QPS_ERR) {
			complete(p->queue, wr->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0, 0);
		} else if (p->state == IBV_QPS_RESET || p->count == p->most) {
			result = ENOMEM;
			break;
		} else {
			p->receives[(p->first + p->count++) % MOST] = wr->wr_id;
		}
	}
	pthread_mutex_unlock(&p->queue->lock);
	return result;
}

// place returns where the peer's memory is mapped, NULL if it may not be written.
static void *place(struct pair *p, uint64_t address, uint32_t length, uint32_t key)
{
	if (!p->ring || p->key != key) {
		char path[PATH_MAX];
		struct stat st;
		if (p->ring)
			munmap(p->ring, p->mapped);
		p->ring = NULL;
		path_of(path, "memory", key);
		int file = open(path, O_RDWR | O_CLOEXEC);
		if (file < 0)
			return NULL;
		void *at = MAP_FAILED;
		if (!fstat(file, &st))
			at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		close(file);
		if (at == MAP_FAILED)
			return NULL;
		p->ring = at;
		p->mapped = (size_t)st.st_size;
		p->key = key;
	}
	uint64_t offset = address - p->ring->address;
	if (!(p->ring->access & IBV_ACCESS_REMOTE_WRITE) || address < p->ring->address || offset + length > p->ring->length)
		return NULL;
	return (char *)p->ring + HEADER + offset;
}

// killed chooses writes that break their queue pair, and returns the status, 0 for none.
static int killed(struct pair *p)
{
	static const int statuses[] = {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR,
				       IBV_WC_LOC_PROT_ERR};
	char path[PATH_MAX];
	if (!p->kill || random_number() % p->kill)
		return 0;
	snprintf(path, sizeof path, "%s/killed", directory());
	int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (file >= 0) {
		if (write(file, "x", 1) != 1)
			abort();
		close(file);
	}
	return statuses[random_number() % (sizeof statuses / sizeof *statuses)];
}

// opened is a context, whose descriptor for events is a pipe.
struct opened {
	struct ibv_context context;
	int report; // the pipe's other end
	struct opened *next;
};

static pthread_mutex_t lock_of_opened = PTHREAD_MUTEX_INITIALIZER;
static struct opened *all_opened;

// report_pair makes an event of a pair.
static void report_pair(struct pair *p)
{
	static const int types[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR};
	struct ibv_async_event event;
	memset(&event, 0, sizeof event);
	event.event_type = types[random_number() % (sizeof types / sizeof *types)];
	event.element.qp = &p->qp;
	if (write(((struct opened *)p->qp.context)->report, &event, sizeof event) < 0 && errno != EAGAIN)
		abort();
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct pair *p = (struct pair *)qp;
	int result = 0;
	for (; wr && !result; wr = wr->next) {
		*bad = wr;
		uint32_t length = wr->num_sge ? wr->sg_list->length : 0;
		int status = killed(p);
		void *to = NULL;
		if (wr->num_sge > 1 || wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM || p->state < IBV_QPS_RTS)
			return EINVAL;
		if (!status && length && !(to = place(p, wr->wr.rdma.remote_addr, length, wr->wr.rdma.rkey)))
			status = IBV_WC_REM_ACCESS_ERR;
		if (!status && length)
			memcpy(to, (void *)(uintptr_t)wr->sg_list->addr, length);
		pthread_mutex_lock(&p->queue->lock);
		if (p->event && !p->ended && p->state == IBV_QPS_RTS && random_number() % p->event == 0) {
			p->ended = 1;
			report_pair(p);
		}
		if (p->ended) {
			pthread_mutex_unlock(&p->queue->lock);
			continue;
		}
		struct message m = {p->qp.qp_num, length, wr->imm_data, 0};
		if (p->state == IBV_QPS_ERR)
			status = IBV_WC_WR_FLUSH_ERR;
		else if (!status && (port_is_down || p->unreached || p->out < 0 || write(p->out, &m, sizeof m) != sizeof m))
			status = IBV_WC_RETRY_EXC_ERR;
		complete(p->queue, wr->wr_id, status, IBV_WC_RDMA_WRITE, length, 0);
		if (status)
			fail(p);
		pthread_mutex_unlock(&p->queue->lock);
	}
	return result;
}

// A thread of the process watches the directory and writes events to all contexts.
static void report(enum ibv_event_type type)
{
	struct ibv_async_event event;
	memset(&event, 0, sizeof event);
	event.event_type = type;
	event.element.port_num = 1;
	pthread_mutex_lock(&lock_of_opened);
	for (struct opened *o = all_opened; o; o = o->next)
		if (write(o->report, &event, sizeof event) < 0 && errno != EAGAIN)
			abort();
	pthread_mutex_unlock(&lock_of_opened);
}

static void *watch(void *descriptor)
{
	static char buffer[64 << 10] __attribute__((aligned(8)));
	int fd = (int)(intptr_t)descriptor;
	ssize_t n;
	while ((n = read(fd, buffer, sizeof buffer)) > 0 || errno == EINTR) {
		const struct inotify_event *e;
		for (char *at = buffer; at < buffer + n; at += sizeof *e + e->len) {
			e = (const struct inotify_event *)at;
			int appears = !!(e->mask & (IN_CREATE | IN_MOVED_TO));
			if (!e->len)
				continue;
			if (!strcmp(e->name, "down") && (e->mask & (IN_CREATE | IN_DELETE))) {
				port_is_down = appears;
				report(appears ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
			} else if (!strcmp(e->name, "gone") && appears) {
				report(IBV_EVENT_DEVICE_FATAL);
			} else if (!strcmp(e->name, "gids") && (e->mask & (IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE))) {
				report(IBV_EVENT_GID_CHANGE);
			}
		}
	}
	return NULL;
}

static void start_watch(void)
{
	pthread_t thread;
	int fd = inotify_init1(IN_CLOEXEC);
	if (fd < 0 || inotify_add_watch(fd, directory(), IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE) < 0 ||
	    pthread_create(&thread, NULL, watch, (void *)(intptr_t)fd)) {
		fprintf(stderr, "stand-in: there will be no events: %s\n", strerror(errno));
	}
	port_is_down = exists("down");
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int ends[2];
	if (names_us("denied")) {
		errno = EACCES;
		return NULL;
	}
	pthread_once(&once, start_watch);
	struct opened *o = calloc(1, sizeof *o);
	if (!o || pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
		free(o);
		return NULL;
	}
	o->context.device = device;
	o->context.ops.poll_cq = poll_cq;
	o->context.ops.req_notify_cq = req_notify_cq;
	o->context.ops.post_send = post_send;
	o->context.ops.post_recv = post_recv;
	o->context.cmd_fd = -1;
	o->context.async_fd = ends[0];
	o->report = ends[1];
	pthread_mutex_lock(&lock_of_opened);
	o->next = all_opened;
	all_opened = o;
	pthread_mutex_unlock(&lock_of_opened);
	return &o->context;
}

int ibv_close_device(struct ibv_context *context)
{
	struct opened *o = (struct opened *)context;
	pthread_mutex_lock(&lock_of_opened);
	for (struct opened **at = &all_opened; *at; at = &(*at)->next)
		if (*at == o) {
			*at = o->next;
			break;
		}
	pthread_mutex_unlock(&lock_of_opened);
	close(context->async_fd);
	close(o->report);
	free(o);
	return 0;
}

// pair_of returns the pair that an event is about, NULL if it is about a port or the device.
static struct pair *pair_of(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		return (struct pair *)event->element.qp;
	default:
		return NULL;
	}
}

static void acknowledge(struct ibv_async_event *event, int by)
{
	struct pair *p = pair_of(event);
	if (!p)
		return;
	pthread_mutex_lock(&p->queue->lock);
	p->unacknowledged += by;
	pthread_mutex_unlock(&p->queue->lock);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	if (read(context->async_fd, event, sizeof *event) != sizeof *event)
		return -1;
	acknowledge(event, 1);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event) { acknowledge(event, -1); }
