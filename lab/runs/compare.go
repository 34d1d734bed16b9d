package runs

import (
	"fmt"
	"math"
)

// outcome is the result of a run on one side.
type outcome struct {
	tensors tensors
	err     error
}

type verdict struct {
	Word  string // same, differs, fails here, fails there, fails in both, or left: not compared
	Apart float64
	Why   string
}

// These are the words of verdicts.
const (
	left       = "left"
	same       = "same"
	differs    = "differs"
	failsHere  = "fails here"
	failsThere = "fails there"
	failsBoth  = "fails in both"
)

// compare compares the outcomes of the same run on both sides.
func compare(here, there outcome) verdict {
	switch {
	case here.err != nil && there.err != nil:
		return verdict{Word: failsBoth, Why: here.err.Error()}
	case here.err != nil:
		return verdict{Word: failsHere, Why: here.err.Error()}
	case there.err != nil:
		return verdict{Word: failsThere, Why: there.err.Error()}
	}
	return apart(here.tensors, there.tensors)
}

// apart reports whether two sets of tensors are equal, and how much they differ.
func apart(here, there tensors) verdict {
	if here.hashes() == there.hashes() {
		return verdict{Word: same}
	}
	weights, state := here.split()
	wantWeights, wantState := there.split()
	d, at := weights.distance(wantWeights)
	ds, ats := state.distance(wantState)
	v := verdict{Word: differs, Apart: max(d, ds)}
	if at == "" {
		v.Why = "weights the same"
	} else {
		v.Why = "weights " + amount(d, at)
	}
	if ats != "" {
		v.Why += "; state " + amount(ds, ats)
	}
	return v
}

func amount(d float64, at string) string {
	if math.IsInf(d, 1) {
		return at
	}
	return fmt.Sprintf("%.2g apart (%s)", d, at)
}

// against compares a run with the hashes in a file.
func (h *hashes) against(name string, here outcome) verdict {
	want, known := h.Runs[name]
	switch {
	case here.err != nil:
		return verdict{Word: failsHere, Why: here.err.Error()}
	case !known:
		return verdict{Word: failsThere, Why: "the file has no hash of it"}
	case here.tensors.hashes() != want:
		got := here.tensors.hashes()
		why := fmt.Sprintf("weights %s, state %s; there %s, %s",
			short(got.Weights), short(got.State), short(want.Weights), short(want.State))
		return verdict{Word: differs, Apart: math.Inf(1), Why: why}
	}
	return verdict{Word: same}
}

// short returns the beginning of a hash, which is enough to distinguish two hashes.
func short(hash string) string { return hash[:min(16, len(hash))] }

// exception is a run that is expected to differ from a commit, with the reason.
type exception struct {
	Run string
	// Fails means that the run fails at that commit; otherwise its tensors differ.
	Fails bool
	// Within is the largest allowed difference, as distance measures it; 0 allows any.
	Within float64
	Why    string
}

// admits reports whether an exception covers a verdict.
func (e exception) admits(v verdict) bool {
	if e.Fails {
		return v.Word == failsThere
	}
	return v.Word == differs && (e.Within == 0 || v.Apart <= e.Within)
}

// judge reports whether a verdict is as expected, and returns a remark to print after it.
func judge(name string, v verdict, exceptions []exception) (fine bool, remark string) {
	for _, e := range exceptions {
		if e.Run != name {
			continue
		}
		switch {
		case e.admits(v):
			return true, "as expected: " + e.Why
		case v.Word == same:
			return true, "but it was expected to differ: " + e.Why
		}
		return false, "more than is expected: " + e.Why
	}
	return v.Word == same || v.Word == left, ""
}
