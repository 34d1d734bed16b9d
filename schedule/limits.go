package schedule

// Limits of a Program. They are checked before memory of that size is allocated.
const (
	// MaxWorkers is the largest number of workers.
	MaxWorkers = 1 << 14
	// MaxInstructions is the largest number of instructions in the lists of a Program, from a file or a family. A step
	// of 1,024 workers with 4,096 micro-batches has half as many.
	MaxInstructions = 1 << 24
	// MaxPlayed is the largest number of instructions of a Program that is checked, drawn or simulated. It counts every
	// repetition, and the instructions that lowering adds.
	MaxPlayed = 1 << 25
	// MaxFile is the largest size of a Program's file, in bytes.
	MaxFile = 1 << 27
)

// Instructions returns the number of instructions of the Program, counting each repetition of its body.
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

// BucketBytes is the default for the least number of gradient bytes that replicas sum at once. Each sum costs three
// rounds of messages. So a layer with fewer bytes is summed together with the next layer.
const BucketBytes = 1 << 20
