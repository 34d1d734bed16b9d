package schedule

// cursor walks one worker's list of a Program: prologue, body Repeat times,
// epilogue, turning relative ids into absolute ones.
type cursor struct {
	p      *Program
	worker int
	part   int // 0 prologue, 1 body, 2 epilogue, 3 the end
	rep    int32
	at     int
}

func newCursor(p *Program, worker int) cursor {
	c := cursor{p: p, worker: worker}
	c.settle()
	return c
}

func (p *Program) list(part, worker int) List {
	var lists Part
	switch part {
	case 0:
		lists = p.Prologue
	case 1:
		lists = p.Body
	case 2:
		lists = p.Epilogue
	}
	if worker < len(lists) {
		return lists[worker]
	}
	return nil
}

// settle moves past parts that have nothing left.
func (c *cursor) settle() {
	for c.part < 3 && c.at >= len(c.p.list(c.part, c.worker)) {
		c.at = 0
		if c.part == 1 && int(c.rep)+1 < c.p.Repeat {
			c.rep++
			if len(c.p.list(1, c.worker)) > 0 {
				return
			}
			continue
		}
		c.part++
		if c.part == 1 && c.p.Repeat <= 0 {
			c.part = 2
		}
	}
}

// head is the instruction under the cursor with absolute ids.
func (c *cursor) head() (Instruction, bool) {
	if c.part >= 3 {
		return Instruction{}, false
	}
	in := c.p.list(c.part, c.worker)[c.at]
	in.Micro += c.shift(in.Kind)
	return in, true
}

// shift is how far ids of a kind are from the Program's start at this place.
func (c *cursor) shift(k Kind) int32 {
	var reps int32
	switch c.part {
	case 1:
		reps = c.rep
	case 2:
		reps = int32(c.p.Repeat)
	}
	if k.OfMinibatch() {
		return reps * int32(c.p.Period)
	}
	return reps * int32(c.p.MicroBatches)
}

func (c *cursor) advance() {
	c.at++
	c.settle()
}

// OfMinibatch says whether an instruction's number counts minibatches rather than micro-batches.
func (k Kind) OfMinibatch() bool {
	switch k {
	case AR, TG, GN, U, CK, DR:
		return true
	}
	return false
}

// Walk calls yield for every instruction of a worker with absolute ids, until it returns false.
func (p *Program) Walk(worker int, yield func(Instruction) bool) {
	for c := newCursor(p, worker); ; c.advance() {
		in, ok := c.head()
		if !ok || !yield(in) {
			return
		}
	}
}
