package schedule

// Key names an Instruction with absolute ids in one word, for maps and for what goes between processes.
//
// From the highest bit down it is kind 5, pipeline 6, replica 10, stage 15, micro 28, so keys of one kind
// sort as their instructions do. Instructions that Validate accepts have keys of their own; ids of two
// Programs both begin at 0, so whoever holds messages of several keeps an epoch beside the key. The zero
// Key is that of 0F0, which no message has. A Key is the house's name: a carrier numbers what it moves as
// it likes.
type Key uint64

const (
	microBits, stageBits, replicaBits, pipelineBits = 28, 15, 10, 6 // and what is left for the kind

	stageAt    = microBits
	replicaAt  = stageAt + stageBits
	pipelineAt = replicaAt + replicaBits
	kindAt     = pipelineAt + pipelineBits
)

// Key is the instruction's name. Fields beyond MaxMicro, MaxStage, MaxReplica and MaxPipeline have none.
func (in Instruction) Key() Key {
	return Key(uint64(uint32(in.Micro))&MaxMicro | uint64(in.Stage)<<stageAt | uint64(in.Replica)<<replicaAt |
		uint64(in.Pipeline)<<pipelineAt | uint64(in.Kind-F)<<kindAt)
}

// Instruction is what the key names.
func (k Key) Instruction() Instruction {
	return Instruction{
		Micro: int32(k & MaxMicro), Stage: int32(k >> stageAt & MaxStage), Replica: int16(k >> replicaAt & MaxReplica),
		Pipeline: int16(k >> pipelineAt & MaxPipeline), Kind: F + Kind(k>>kindAt),
	}
}

// String is the instruction's text.
func (k Key) String() string { return k.Instruction().String() }
