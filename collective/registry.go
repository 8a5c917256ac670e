package collective

// strategies has, for each kind of operation, the strategies that can carry it out. The first that fits does, so the
// order matters: rings fits every allreduce and comes last, and codedSums fits every coded one, so a strategy for one
// algorithm comes before rings, and before codedSums too unless codedSums can carry the algorithm out for coded
// tensors.
var strategies = registry{
	Allreduce:     {adasums, inlines, oneHosts, codedDirects, directs, codedSums, doublings, rings},
	Allgather:     {allgathers},
	Broadcast:     {broadcasts},
	Barrier:       {barriers},
	Alltoall:      {exchanges},
	ReduceScatter: {codedScatters, scatters},
	AddGroup:      {groupAdditions},
	RemoveGroup:   {barriers},
	Join:          {joins},
	Reduce:        {codedScatters, scatters},
	Gather:        {exchanges},
	Scatter:       {exchanges},
	Send:          {broadcasts},
}
