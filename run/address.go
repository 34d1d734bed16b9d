package run

import (
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/wire"
)

// tagOf is the wire's tag for the message that instruction in sends. epoch numbers the
// Programs of a run, whose ids each begin at 0.
func tagOf(in schedule.Instruction, epoch uint32) wire.Tag {
	return wire.Tag{
		Channel:  uint64(in.Kind)<<56 | uint64(uint16(in.Pipeline))<<40 | uint64(uint16(in.Replica))<<24 | uint64(uint32(in.Stage))&0xffffff,
		Sequence: uint64(epoch)<<32 | uint64(uint32(in.Micro)),
	}
}

// instructionOf is the instruction that a tag was made of.
func instructionOf(t wire.Tag) schedule.Instruction {
	return schedule.Instruction{
		Kind: schedule.Kind(t.Channel >> 56), Pipeline: int16(t.Channel >> 40), Replica: int16(t.Channel >> 24),
		Stage: int32(t.Channel & 0xffffff), Micro: int32(uint32(t.Sequence)),
	}
}
