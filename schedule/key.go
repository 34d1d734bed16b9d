package schedule

// Key encodes an Instruction with absolute ids in one integer, for maps and for messages between processes.
//
// From the highest bit down its fields are kind 5, pipeline 6, replica 10, stage 15, micro 28 bits. So keys sort by
// kind, then pipeline, replica, stage and micro-batch. Instructions that Validate accepts have distinct keys. The ids
// of every Program begin at 0, so code that holds messages of several Programs keeps an epoch with the key. The zero
// Key is that of 0F0, which no message has. Keys are internal: a carrier may number its messages differently.
type Key uint64

const (
	microBits, stageBits, replicaBits, pipelineBits = 28, 15, 10, 6 // the kind has the remaining bits

	stageAt    = microBits
	replicaAt  = stageAt + stageBits
	pipelineAt = replicaAt + replicaBits
	kindAt     = pipelineAt + pipelineBits
)

// Key returns the instruction's Key. Fields must not exceed MaxMicro, MaxStage, MaxReplica and MaxPipeline.
func (in Instruction) Key() Key {
	return Key(uint64(uint32(in.Micro))&MaxMicro | uint64(in.Stage)<<stageAt | uint64(in.Replica)<<replicaAt |
		uint64(in.Pipeline)<<pipelineAt | uint64(in.Kind-F)<<kindAt)
}

// Instruction returns the instruction that the key encodes.
func (k Key) Instruction() Instruction {
	return Instruction{
		Micro: int32(k & MaxMicro), Stage: int32(k >> stageAt & MaxStage), Replica: int16(k >> replicaAt & MaxReplica),
		Pipeline: int16(k >> pipelineAt & MaxPipeline), Kind: F + Kind(k>>kindAt),
	}
}

// String returns the instruction's text.
func (k Key) String() string { return k.Instruction().String() }
