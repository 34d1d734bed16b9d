package schedule

// Cursor walks one worker's list of a Program: prologue, body Repeat times,
// epilogue, turning relative ids into absolute ones. A copy walks on by itself.
type Cursor struct {
	p      *Program
	worker int
	part   int // 0 prologue, 1 body, 2 epilogue, 3 the end
	rep    int32
	at     int
	list   List        // of the part it is in
	micro  int32       // how far ids of micro-batches are from the Program's start here
	mini   int32       // and of minibatches
	in     Instruction // the one under it, with absolute ids; whoever drives a Gate asks for it several times
}

// NewCursor begins at the first instruction of the worker's list.
func NewCursor(p *Program, worker int) Cursor {
	c := Cursor{p: p, worker: worker}
	c.enter(0)
	c.settle()
	c.read()
	return c
}

// enter puts the cursor at the beginning of a part, or of the repetition of the body that rep says.
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

// settle moves past parts that have nothing left.
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

// Head is the instruction under the cursor with absolute ids.
func (c *Cursor) Head() (Instruction, bool) { return c.in, c.part < 3 }

// Place is where the instruction under the cursor stands: in which part and where in its list, and as it is
// written there, with the ids of the part.
func (c *Cursor) Place() (part, at int, written Instruction) { return c.part, c.at, c.list[c.at] }

// Repetition is that of the body which the cursor is in: -1 in the prologue, and Repeat in the epilogue.
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

// read takes in the instruction under the cursor.
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

// Walk calls yield for every instruction of a worker with absolute ids, until it returns false.
func (p *Program) Walk(worker int, yield func(Instruction) bool) {
	for c := NewCursor(p, worker); ; c.Advance() {
		in, ok := c.Head()
		if !ok || !yield(in) {
			return
		}
	}
}

// MinibatchOf is the minibatch of the Program that an instruction works for.
func (p *Program) MinibatchOf(in Instruction) int {
	if in.Kind.OfMinibatch() {
		return int(in.Micro)
	}
	return int(in.Micro) * p.Period / p.MicroBatches
}
