/* A part of gorun.c: how an operation is carried out in its slot. */

/* meet carries out a call in its slot. If a rank does not come, meet closes the slot and sets *done to 0. */
static int meet(struct slot *l, const gorun_call *c, int *done) {
	struct sum slice;
	int how = 0, code;
	*done = 1;
	world.meeting = l;
	enter_slot(l, c);
	let_go();
	uint64_t began = waits();
	code = await(all_here, l, &how);
	int came = !code && how > 0, apart = came && !l->wide && !l->belt;
	if (code || came)
		waited(began, 0);
	else
		missed(began);
	if (apart)
		reduce(l, c->out);
	else if (came)
		began = waits();
	if (came && l->belt)
		code = pass_belt(l, c, &how);
	acquire();
	if (came && l->belt) {
		if (!code && how < 0)
			code = desert(l, departed);
		if (code)
			leave_belt();
	} else if (came && l->wide && !(code = aim(l, c, &slice))) {
		let_go();
		reduce_slice(l, &slice);
		code = await(all_reduced, l, &how);
		acquire();
		if (!code && how < 0)
			code = desert(l, deserted);
	} else if (!code && how < 0) {
		close_slot(l);
		*done = 0;
	}
	if (came && !apart)
		moved(began);
	world.meeting = NULL;
	pthread_cond_broadcast(&met);
	return code;
}
