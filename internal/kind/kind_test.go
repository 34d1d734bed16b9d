package kind_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/kind"
)

// TestTable compares the table with a list of the kinds for each property.
func TestTable(t *testing.T) {
	all := strings.Fields("F B I W SF RF SB RB AR TG GN U PV CK EV DR SG RG SW RW UR")
	for property, c := range map[string]struct {
		has  func(kind.Kind) bool
		want string
	}{
		"computes":              {kind.Kind.IsCompute, "F B I W U EV"},
		"sends":                 {kind.Kind.IsSend, "SF SB SG SW"},
		"receives":              {kind.Kind.IsReceive, "RF RB RG RW"},
		"is a collective":       {kind.Kind.IsCollective, "AR TG GN"},
		"is issued":             {kind.Kind.IsIssued, "SF SB AR TG GN SG SW UR"},
		"counts in minibatches": {kind.Kind.OfMinibatch, "AR TG GN U PV CK DR SG RG SW RW UR"},
		"has the compute lane":  {func(k kind.Kind) bool { return k.Lane() == kind.Compute }, "F B I W U CK EV"},
		"has the other lane": {func(k kind.Kind) bool { return k.Lane() == kind.Comm },
			"SF RF SB RB AR TG GN PV DR SG RG SW RW"},
		"has a thread of its own": {func(k kind.Kind) bool { return k.Lane() == kind.Beside }, "UR"},
	} {
		var got []string
		for _, k := range kind.All() {
			if c.has(k) {
				got = append(got, k.String())
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", property, got, c.want)
		}
		for _, no := range []kind.Kind{0, 22, 255} {
			if c.has(no) {
				t.Errorf("%s: also %v, which is no kind", property, no)
			}
		}
	}
	var plain []string
	for i, letters := range all {
		k, ok := kind.Parse(letters)
		if !ok || k != kind.All()[i] || k.String() != letters || kind.Of(letters) != *k.Info() {
			t.Errorf("%s is read as %v %v", letters, k, ok)
		}
		if k.Info().Plain == "" || slices.Contains(plain, k.Info().Plain) {
			t.Errorf("%s is %q in words, which says nothing or the same as another", letters, k.Info().Plain)
		}
		plain = append(plain, k.Info().Plain)
	}
}

// TestUnknown: a later version may record letters of an unknown kind; they are shown as they are.
func TestUnknown(t *testing.T) {
	if _, ok := kind.Parse("XY"); ok {
		t.Error("XY is a kind")
	}
	if got := kind.Of("XY"); got != (kind.Info{Letters: "XY", Plain: "XY"}) {
		t.Errorf("XY has the row %+v", got)
	}
	if got := kind.Kind(77); got.String() != "?77" || got.Lane() != "" {
		t.Errorf("kind 77 is %v in lane %q", got, got.Lane())
	}
}
