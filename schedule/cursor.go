package schedule

// Cursor walks one worker's list of a Program: prologue, body Repeat times, epilogue. It turns relative ids into
// absolute ones. A copy moves independently.
type Cursor struct {
	p      *Program
	worker int
	part   int // 0 prologue, 1 body, 2 epilogue, 3 the end
	rep    int32
	at     int
	list   List        // list of the current part
	micro  int32       // what to add to a micro-batch id of the part to make it absolute
	mini   int32       // what to add to a minibatch id of the part to make it absolute
	in     Instruction // the current instruction, with absolute ids, kept because callers ask for it several times
}

// NewCursor returns a cursor at the first instruction of the worker's list.
func NewCursor(p *Program, worker int) Cursor {
	c := Cursor{p: p, worker: worker}
	c.enter(0)
	c.settle()
	c.read()
	return c
}

// enter puts the cursor at the beginning of a part. In the body it is the beginning of the repetition c.rep.
func (c *Cursor) enter(part int) {
	c.part, c.at, c.list = part, 0, nil
	var lists Part
	var reps int32
	switch part {
	case 0:
		lists = c.p.Prologue
	case 1:
		lists, reps = c.p.Body, c.rep
	case 2:
		lists, reps = c.p.Epilogue, int32(c.p.Repeat)
	}
	if c.worker < len(lists) {
		c.list = lists[c.worker]
	}
	c.micro, c.mini = reps*int32(c.p.MicroBatches), reps*int32(c.p.Period)
}

// settle moves past parts, and repetitions of the body, that have nothing left.
func (c *Cursor) settle() {
	for c.part < 3 && c.at >= len(c.list) {
		switch {
		case c.part == 0 && c.p.Repeat <= 0:
			c.enter(2)
		case c.part == 1 && int(c.rep)+1 < c.p.Repeat && len(c.list) > 0:
			c.rep++
			c.enter(1)
		default:
			c.enter(c.part + 1)
		}
	}
}

// Head returns the current instruction with absolute ids, and false at the end of the list.
func (c *Cursor) Head() (Instruction, bool) { return c.in, c.part < 3 }

// Place returns where the current instruction is: its part, its position in that part's list, and the instruction as
// written, with the part's ids.
func (c *Cursor) Place() (part, at int, written Instruction) { return c.part, c.at, c.list[c.at] }

// Repetition returns the repetition of the body that the cursor is in: -1 in the prologue, and Repeat in the
// epilogue.
func (c *Cursor) Repetition() int {
	switch c.part {
	case 0:
		return -1
	case 1:
		return int(c.rep)
	}
	return c.p.Repeat
}

// Advance moves to the next instruction.
func (c *Cursor) Advance() {
	if c.at++; c.at >= len(c.list) {
		c.settle()
	}
	c.read()
}

// read computes the current instruction.
func (c *Cursor) read() {
	if c.part >= 3 {
		c.in = Instruction{}
		return
	}
	c.in = c.list[c.at]
	if c.in.Kind.OfMinibatch() {
		c.in.Micro += c.mini
	} else {
		c.in.Micro += c.micro
	}
}

// Walk calls yield for every instruction of a worker, with absolute ids, until yield returns false.
func (p *Program) Walk(worker int, yield func(Instruction) bool) {
	for c := NewCursor(p, worker); ; c.Advance() {
		in, ok := c.Head()
		if !ok || !yield(in) {
			return
		}
	}
}

// MinibatchOf returns the minibatch of the Program that an instruction works for.
func (p *Program) MinibatchOf(in Instruction) int {
	if in.Kind.OfMinibatch() {
		return int(in.Micro)
	}
	return int(in.Micro) * p.Period / p.MicroBatches
}
