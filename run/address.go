package run

import (
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/wire"
)

// tagOf is the wire's tag for the message that instruction in sends. epoch numbers the
// Programs of a run, whose ids each begin at 0.
func tagOf(in schedule.Instruction, epoch uint32) wire.Tag {
	return wire.Tag{Channel: uint64(in.Key()), Sequence: uint64(epoch)}
}

// instructionOf is the instruction that a tag was made of.
func instructionOf(t wire.Tag) schedule.Instruction { return schedule.Key(t.Channel).Instruction() }
