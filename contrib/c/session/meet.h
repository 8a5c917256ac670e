/* A part of gorun.c: how an operation is carried out in its slot. */

/* agreed reports whether all ranks, which have come to a slot on the belt, have brought the same mark. */
static int agreed(const struct slot *l) {
	for (int r = 0; r < world.local_size; r++)
		if (word(l, r)[1] != word(l, world.local_rank)[1])
			return 0;
	return 1;
}

/* settle decides whether a use of a wide slot or of the belt takes place, in which ranks work on each other's tensors: the first rank says
 * so that has seen all come, or that gives up. It returns what was decided. */
static int settle(const struct slot *l, int takes_place) {
	uint64_t *decided = word(l, 0) + 5, was = __atomic_load_n(decided, __ATOMIC_SEQ_CST), mine = 2 * l->use + !takes_place;
	while (was < 2 * l->use)
		if (__atomic_compare_exchange_n(decided, &was, mine, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return takes_place;
	return was == 2 * l->use;
}

/* meet carries out a call in its slot. If a rank does not come, meet closes the slot and sets *done to 0. */
static int meet(struct slot *l, const gorun_call *c, int *done) {
	struct sum slice;
	int how = 0, code;
	*done = 1;
	world.meeting = l;
	if (l->belt)
		word(l, world.local_rank)[1] = guest.mark;
	enter_slot(l, c);
	let_go();
	uint64_t began = waits();
	code = await(all_here, l, &how);
	if ((l->wide || l->belt) && code == UNFINISHED && settle(l, 0))
		code = GORUN_OK, how = 1, guest.deaf = 1; /* too late: the others count on this rank */
	else if ((l->wide || l->belt) && !code && how > 0 && !settle(l, 1))
		how = -1;
	int came = !code && how > 0 && (!l->belt || agreed(l)), apart = came && !l->wide && !l->belt;
	if (code || came)
		waited(began, 0);
	else
		missed(began);
	guest.until = 0; /* the others do not give up any more */
	if (apart)
		reduce(l, c);
	else if (came)
		began = waits();
	if (came && l->belt)
		code = pass_belt(l, c, &how);
	if (l->belt)
		guest.deaf = 0;
	acquire();
	if (came && l->belt) {
		if (!code && how < 0)
			code = desert(l, departed);
		if (code)
			leave_belt(code == UNFINISHED ? BELT_LEFT : BELT_FAILED);
	} else if (came && l->wide && !(code = aim(l, c, &slice))) {
		let_go();
		reduce_slice(l, &slice);
		guest.deaf = 1; /* the others are at work in this rank's tensor */
		code = await(all_reduced, l, &how);
		guest.deaf = 0;
		acquire();
		if (!code && how < 0)
			code = desert(l, deserted);
	} else if (code == UNFINISHED) { /* others must not wait here for this rank, nor it for them */
		leave_slot(l);
	} else if (!code && !came) {
		close_slot(l);
		*done = 0;
	}
	if (came && !apart)
		moved(began);
	world.meeting = NULL;
	pthread_cond_broadcast(&met);
	return code;
}
