package schedule

import "fmt"

// Limits of a Program, held before anything of its size is made.
const (
	// MaxWorkers bounds the lists of a Program.
	MaxWorkers = 1 << 14
	// MaxInstructions bounds what the lists of a Program hold, as a file has them or a family writes them:
	// a step of 1,024 workers with 4,096 micro-batches is half of it.
	MaxInstructions = 1 << 24
	// MaxPlayed bounds the instructions that are checked, drawn or simulated of a Program, its
	// repetitions one by one and what its order implies among them.
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

// Playable refuses a Program of more instructions than are checked, drawn or simulated, repetitions
// counted.
func (p *Program) Playable() error {
	n := p.Instructions()
	switch {
	case n == 0:
		return &CheckError{Program: p.Name, Worker: -1, Position: -1,
			Why: "it has no instructions; there is nothing to check or to run"}
	case n > MaxPlayed:
		return &CheckError{Program: p.Name, Worker: -1, Position: -1,
			Why: fmt.Sprintf("it has %d instructions, its body %d times; at most %d are played: give fewer repetitions or "+
				"micro-batches", n, p.Repeat, MaxPlayed)}
	}
	return nil
}

// sized refuses settings of a Program that would have more than MaxInstructions: each micro-batch visits
// every stage, or with Split every replica, three times where backwards are split.
func (s Settings) sized() error {
	visits := int64(0)
	for _, on := range s.Placement {
		if s.Replication == Split {
			visits += int64(len(on))
		} else {
			visits++
		}
	}
	most := MaxInstructions / (2 * max(1, visits))
	if s.Elastic != nil {
		most /= int64(max(1, s.Elastic.Pipelines))
	}
	if int64(s.MicroBatches) > most {
		return fmt.Errorf("%d micro-batches through %d stages; a program can have %d instructions, which is %d "+
			"micro-batches here", s.MicroBatches, len(s.Placement), MaxInstructions, most)
	}
	return nil
}

// executable refuses a training Program with instructions that have Programs of their own: what is saved or
// evaluated is drained first, by Checkpoint and Evaluation.
func (p *Program) executable() error {
	trains := false
	for _, part := range []Part{p.Prologue, p.Body, p.Epilogue} {
		for _, list := range part {
			trains = trains || list.trains()
		}
	}
	if !trains {
		return nil
	}
	for w := range p.Workers {
		var wrong error
		at := -1
		p.Walk(w, func(in Instruction) bool {
			at++
			if in.Kind == CK || in.Kind == EV {
				wrong = &CheckError{Program: p.Name, Worker: w, Position: at, Instruction: in,
					Why: "a program that trains does not save or evaluate; train does both between two of them " +
						"(--save-every, --eval-every)"}
			}
			return wrong == nil
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}
