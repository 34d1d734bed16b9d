package schedule

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/kind"
)

// Limits of an Instruction's fields, so that a Key fits in one integer.
const (
	MaxMicro    = 1<<microBits - 1
	MaxStage    = 1<<stageBits - 1
	MaxReplica  = 1<<replicaBits - 1
	MaxPipeline = 1<<pipelineBits - 1
)

// ParseInstruction reads the text form. It accepts only what String writes: no leading zeros, no spaces, no zero
// pipeline or replica.
func ParseInstruction(text string) (Instruction, error) {
	bad := func(why string) (Instruction, error) {
		return Instruction{}, fmt.Errorf("schedule: instruction %q: %s; the form is "+
			"[p<pipeline>/]<stage><kind><micro>[@r<replica>], like 2F0 or p1/2B3@r1", clip(text), why)
	}
	var in Instruction
	rest := text
	if after, ok := strings.CutPrefix(rest, "p"); ok {
		digits, tail, found := strings.Cut(after, "/")
		n, err := number(digits, MaxPipeline)
		if !found || err != nil || n == 0 {
			return bad("the pipeline is not a number from 1 to " + strconv.Itoa(MaxPipeline))
		}
		in.Pipeline, rest = int16(n), tail
	}
	at := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if at <= 0 {
		return bad("it has no stage number")
	}
	n, err := number(rest[:at], MaxStage)
	if err != nil {
		return bad("the stage " + err.Error())
	}
	in.Stage, rest = int32(n), rest[at:]
	at = strings.IndexFunc(rest, func(r rune) bool { return r < 'A' || r > 'Z' })
	if at < 0 {
		return bad("it has no micro-batch number")
	}
	k, ok := kind.Parse(rest[:at])
	if !ok {
		kinds := strings.Trim(fmt.Sprint(kind.All()), "[]")
		return bad("there is no kind " + strconv.Quote(clip(rest[:at])) + " (kinds are " + kinds + ")")
	}
	in.Kind, rest = k, rest[at:]
	micro, replica, replicated := strings.Cut(rest, "@r")
	if in.Micro, err = parseMicro(micro); err != nil {
		return bad("the micro-batch " + err.Error())
	}
	if replicated {
		n, err := number(replica, MaxReplica)
		if err != nil || n == 0 {
			return bad("the replica is not a number from 1 to " + strconv.Itoa(MaxReplica))
		}
		in.Replica = int16(n)
	}
	return in, nil
}

// parseMicro allows a minus sign: relative ids in a body may reach back into the previous repetition.
func parseMicro(s string) (int32, error) {
	digits, negative := strings.CutPrefix(s, "-")
	n, err := number(digits, MaxMicro)
	if err != nil {
		return 0, err
	}
	if negative {
		if n == 0 {
			return 0, fmt.Errorf("is -0")
		}
		n = -n
	}
	return int32(n), nil
}

func number(s string, limit int) (int, error) {
	if s == "" || len(s) > 1 && s[0] == '0' || strings.TrimLeft(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a plain number", clip(s))
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > limit {
		return 0, fmt.Errorf("%s is over %d", clip(s), limit)
	}
	return n, nil
}
