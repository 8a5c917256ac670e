/* A part of gorun.c: how a rank adds up the tensors of the ranks of its host. */

/* piece_at returns the part of a call's tensor that begins after so many bytes: as much as lies in one piece, n bytes at most. */
static gorun_piece piece_at(const gorun_call *c, size_t at, size_t n) {
	gorun_piece p = {c->in, c->out, at + n};
	for (int i = 0; i < c->npieces; i++, at -= p.bytes)
		if (at < (p = c->pieces[i]).bytes)
			break;
	p.bytes -= at;
	if (p.bytes > n)
		p.bytes = n;
	p.in = p.in ? (const unsigned char *)p.in + at : NULL;
	p.out = p.out ? (unsigned char *)p.out + at : NULL;
	return p;
}

/* copy_in copies n bytes of a call's input from a place on, copy_out to its output. */
static void copy_in(unsigned char *to, const gorun_call *c, size_t at, size_t n) {
	for (gorun_piece p; n; to += p.bytes, at += p.bytes, n -= p.bytes) {
		p = piece_at(c, at, n);
		memcpy(to, p.in, p.bytes);
	}
}

static void copy_out(const unsigned char *from, const gorun_call *c, size_t at, size_t n) {
	for (gorun_piece p; n; from += p.bytes, at += p.bytes, n -= p.bytes) {
		p = piece_at(c, at, n);
		memcpy(p.out, from, p.bytes);
	}
}

/* What a rank adds up in a slot: the sources of all ranks, into its own result or into every rank's. */
struct sum {
	const unsigned char *in[MAX_SLOT_RANKS];
	unsigned char *out[MAX_SLOT_RANKS];
	int outs;
	size_t count;
};

/* ADD adds up the sources of all ranks. It keeps four vectors of the sum in registers, so that it loads and stores each byte
 * once, which compilers do not find by themselves. The last few elements go through a vector too. */
#define ADD(name, attribute, type, bytes, finish)                                                                     \
	attribute static void name(const struct sum *s, double average) {                                             \
		typedef type vector __attribute__((vector_size(bytes), aligned(sizeof(type)), may_alias));            \
		const size_t width = bytes / sizeof(type), n = s->count;                                              \
		const type by = (type)average;                                                                        \
		size_t at = 0;                                                                                        \
		for (; n - at >= 4 * width; at += 4 * width) {                                                        \
			const vector *in = (const vector *)(const void *)((const type *)(const void *)s->in[0] + at); \
			vector a = in[0], b = in[1], c = in[2], d = in[3];                                            \
			for (int r = 1; r < world.local_size; r++) {                                                  \
				in = (const vector *)(const void *)((const type *)(const void *)s->in[r] + at);       \
				a += in[0], b += in[1], c += in[2], d += in[3];                                       \
			}                                                                                             \
			finish(a);                                                                                    \
			finish(b);                                                                                    \
			finish(c);                                                                                    \
			finish(d);                                                                                    \
			for (int r = 0; r < s->outs; r++) {                                                           \
				vector *to = (vector *)(void *)((type *)(void *)s->out[r] + at);                      \
				to[0] = a, to[1] = b, to[2] = c, to[3] = d;                                           \
			}                                                                                             \
		}                                                                                                     \
		for (; at < n; at++) {                                                                                \
			vector a = {((const type *)(const void *)s->in[0])[at]};                                      \
			for (int r = 1; r < world.local_size; r++)                                                    \
				a[0] += ((const type *)(const void *)s->in[r])[at];                                   \
			finish(a);                                                                                    \
			for (int r = 0; r < s->outs; r++)                                                             \
				((type *)(void *)s->out[r])[at] = a[0];                                               \
		}                                                                                                     \
		(void)by;                                                                                             \
	}

/* An average is divided. Every NaN becomes the same one: all bits of x == x are set where x is not a NaN. */
#define NOT_A_NUMBER (float)__builtin_nan("")
#define SCALE(x)                                                                                                      \
	do {                                                                                                          \
		x *= by;                                                                                              \
		x = (vector)(((x == x) & (__typeof__(x == x))x) | ((x != x) & (__typeof__(x == x))((vector){0} + NOT_A_NUMBER))); \
	} while (0)
#define LEAVE(x) (void)(x)

/* ADD_ALL is ADD for all types in slots, with vectors of the given size. */
#define ADD_ALL(suffix, attribute, bytes)                                                                             \
	ADD(add_float32##suffix, attribute, float, bytes, SCALE)                                                      \
	ADD(add_float64##suffix, attribute, double, bytes, SCALE)                                                     \
	ADD(add_32##suffix, attribute, uint32_t, bytes, LEAVE)                                                        \
	ADD(add_64##suffix, attribute, uint64_t, bytes, LEAVE)                                                        \
	static void add##suffix(const struct slot *l, const struct sum *s) {                                          \
		double by = l->op == GORUN_AVERAGE ? 1.0 / world.size : 1.0;                                          \
		if (l->type == GORUN_FLOAT32)                                                                         \
			add_float32##suffix(s, by);                                                                   \
		else if (l->type == GORUN_FLOAT64)                                                                    \
			add_float64##suffix(s, by);                                                                   \
		else if (l->type == GORUN_INT32 || l->type == GORUN_UINT32)                                           \
			add_32##suffix(s, by);                                                                        \
		else                                                                                                  \
			add_64##suffix(s, by);                                                                        \
	}

ADD_ALL(_16, , 16)
#ifdef __x86_64__
ADD_ALL(_avx2, __attribute__((target("avx2"))), 32)
#endif

#ifdef __x86_64__
/* has_avx2 reports whether the CPU has AVX2 and the kernel saves its registers. The compiler's own function needs a library that
 * not every compiler has. */
static int has_avx2(void) {
	static int known; /* 1: no, 2: yes */
	int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
	if (!answer) {
		unsigned a, b, c, d, low = 0, high;
		answer = 1;
		if (__get_cpuid(1, &a, &b, &c, &d) && c & bit_OSXSAVE && c & bit_AVX)
			__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
		if ((low & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_AVX2)
			answer = 2;
		__atomic_store_n(&known, answer, __ATOMIC_RELAXED);
	}
	return answer == 2;
}
#endif

static void add(const struct slot *l, const struct sum *s) {
#ifdef __x86_64__
	if (has_avx2()) {
		add_avx2(l, s);
		return;
	}
#endif
	add_16(l, s);
}
