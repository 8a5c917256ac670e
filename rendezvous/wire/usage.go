package wire

// AskUsage asks a daemon for the resources that its ranks use.
type AskUsage struct{}

// Usage is the answer.
type Usage struct {
	Ranks []RankUsage `msgpack:"ranks"`
}

// RankUsage is what a rank uses, together with all processes that it started.
type RankUsage struct {
	Rank      int    `msgpack:"rank"`
	CPUMS     int64  `msgpack:"cpu"` // time on CPUs so far
	RSS       int64  `msgpack:"rss"` // bytes in memory; shared memory counts for each process
	Processes int    `msgpack:"processes"`
	State     string `msgpack:"state"` // in words
}

func (*AskUsage) kind() byte { return 80 }
func (*Usage) kind() byte    { return 81 }
