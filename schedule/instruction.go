package schedule

import "strconv"

// Kind is what an instruction does.
type Kind uint8

// The vocabulary. B is the full backward pass; where a schedule splits it,
// B = I + W (Qi et al., Zero Bubble Pipeline Parallelism, call our I "B").
const (
	F  Kind = iota + 1 // forward
	B                  // full backward
	I                  // input gradient
	W                  // weight gradient
	SF                 // send activations to the next stage
	RF                 // receive activations from the previous stage
	SB                 // send gradients to the previous stage
	RB                 // receive gradients from the next stage
	AR                 // all-reduce of a stage's gradients over its replicas
	TG                 // sum of the gradients of tied parameters over the stages that hold them
	GN                 // global gradient norm: every stage contributes, every stage learns it
	U                  // update
	CK                 // checkpoint
	EV                 // forward of an evaluation micro-batch
	DR                 // drain: nothing passes until every worker is here
	PV                 // post-validation of an update that did not wait for the gradient norm
)

var kindNames = [...]string{F: "F", B: "B", I: "I", W: "W", SF: "SF", RF: "RF", SB: "SB", RB: "RB",
	AR: "AR", TG: "TG", GN: "GN", U: "U", CK: "CK", EV: "EV", DR: "DR", PV: "PV"}

// String is the letters of the kind in an instruction's text.
func (k Kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return "?" + strconv.Itoa(int(k))
}

// IsCompute says whether the kind keeps the device itself busy, so that it takes
// a core where workers share cores.
func (k Kind) IsCompute() bool {
	return k == F || k == B || k == I || k == W || k == U || k == EV
}

// IsReceive says whether the instruction takes a message of another worker's.
func (k Kind) IsReceive() bool { return k == RF || k == RB }

// Instruction is one thing one worker does. Micro is the micro-batch, or for
// AR, TG, GN, U, PV, CK and DR the minibatch, relative to the repetition of the
// Program's body it stands in.
type Instruction struct {
	Stage    int32 // virtual stage
	Micro    int32
	Pipeline int16
	Replica  int16
	Kind     Kind
}

// String is the text form [p<pipeline>/]<stage><kind><micro>[@r<replica>], with
// zero pipeline and replica left out: "2F0", "p1/2B3@r1".
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

// MarshalText and UnmarshalText put the text form into JSON.
func (in Instruction) MarshalText() ([]byte, error) { return in.append(nil), nil }

// UnmarshalText accepts what ParseInstruction accepts.
func (in *Instruction) UnmarshalText(text []byte) error {
	parsed, err := ParseInstruction(string(text))
	*in = parsed
	return err
}
