package schedule

import (
	"strconv"

	"github.com/millrace-ml/millrace/internal/kind"
)

// Kind says what an instruction does. The table of kinds has the details.
type Kind = kind.Kind

// The kinds. B is the full backward pass. If a schedule splits it, B = I + W (Qi et al., Zero Bubble Pipeline
// Parallelism, call our I "B").
const (
	F  = kind.F  // forward
	B  = kind.B  // full backward
	I  = kind.I  // input gradient
	W  = kind.W  // weight gradient
	SF = kind.SF // send activations to the next stage
	RF = kind.RF // receive activations from the previous stage
	SB = kind.SB // send gradients to the previous stage
	RB = kind.RB // receive gradients from the next stage
	AR = kind.AR // all-reduce of a stage's gradients over its replicas
	TG = kind.TG // sum of the gradients of tied parameters over the stages that hold them
	GN = kind.GN // global gradient norm: every stage contributes, every stage gets the result
	U  = kind.U  // update
	PV = kind.PV // post-validation of an update that did not wait for the gradient norm
	CK = kind.CK // checkpoint
	EV = kind.EV // forward of an evaluation micro-batch
	DR = kind.DR // drain: no worker goes on until all have reached it
	SG = kind.SG // send the gradients of a minibatch to the worker that holds the weights
	RG = kind.RG // receive a minibatch's gradients on the worker that holds the weights
	SW = kind.SW // send the newest weights to a worker, for its next minibatch
	RW = kind.RW // receive the newest weights
	UR = kind.UR // update of a reference model, beside the worker
)

// Instruction is a single operation of one worker. Micro is the micro-batch. For AR, TG, GN, U, PV, CK, DR, SG, RG, SW,
// RW and UR it is the minibatch. In a Program's body it is relative to the repetition.
type Instruction struct {
	Stage    int32 // virtual stage
	Micro    int32
	Pipeline int16
	Replica  int16
	Kind     Kind
}

// String returns the text form [p<pipeline>/]<stage><kind><micro>[@r<replica>], with zero pipeline and replica left
// out: "2F0", "p1/2B3@r1".
func (in Instruction) String() string {
	var room [40]byte
	return string(in.append(room[:0]))
}

func (in Instruction) append(b []byte) []byte {
	if in.Pipeline != 0 {
		b = append(b, 'p')
		b = strconv.AppendInt(b, int64(in.Pipeline), 10)
		b = append(b, '/')
	}
	b = strconv.AppendInt(b, int64(in.Stage), 10)
	b = append(b, in.Kind.String()...)
	b = strconv.AppendInt(b, int64(in.Micro), 10)
	if in.Replica != 0 {
		b = append(b, "@r"...)
		b = strconv.AppendInt(b, int64(in.Replica), 10)
	}
	return b
}

// MarshalText and UnmarshalText use the text form in JSON.
func (in Instruction) MarshalText() ([]byte, error) { return in.append(nil), nil }

// UnmarshalText accepts what ParseInstruction accepts.
func (in *Instruction) UnmarshalText(text []byte) error {
	parsed, err := ParseInstruction(string(text))
	*in = parsed
	return err
}

// As returns the same instruction with another kind.
func (in Instruction) As(k Kind) Instruction {
	in.Kind = k
	return in
}
