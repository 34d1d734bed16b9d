package schedule

// Limits of a Program, held before anything of its size is made.
const (
	// MaxWorkers bounds the lists of a Program.
	MaxWorkers = 1 << 14
	// MaxInstructions bounds what the lists of a Program hold, as a file has them or a family writes them:
	// a step of 1,024 workers with 4,096 micro-batches is half of it.
	MaxInstructions = 1 << 24
	// MaxPlayed bounds the instructions of a Program that is checked, drawn or simulated. Repetitions count one by one,
	// and what its order implies among them.
	MaxPlayed = 1 << 25
	// MaxFile bounds the bytes of a Program's file.
	MaxFile = 1 << 27
)

// Instructions is how many instructions the Program has, its body as often as it is repeated.
func (p *Program) Instructions() int64 {
	n := int64(0)
	for k, part := range []Part{p.Prologue, p.Body, p.Epilogue} {
		times := int64(1)
		if k == 1 {
			times = int64(max(0, p.Repeat))
		}
		for _, list := range part {
			n += times * int64(len(list))
		}
	}
	return n
}

// BucketBytes is how many bytes of gradients replicas sum at once, at least, unless a run is told otherwise.
// Smaller layers wait for the next, because each sum costs three rounds of messages.
const BucketBytes = 1 << 20
