package table

import "testing"

// Agreement by hand: of three ratios 2, 1 and 0.5 ours are 2.1 (near, faster), 1.2 (not near; the paper's has no sign)
// and 0.9 (not near, slower as well). All three pairs stand in the paper's order. Of two words one is the same.
func TestAgreementByHand(t *testing.T) {
	var table Table
	for i, paper := range []float64{2, 1, .5} {
		table.Number("x", paper, []float64{2.1, 1.2, .9}[i], "%.1f", "").Ratio().In("g")
	}
	table.Word("w", "15-1", "15-1", "")
	table.Word("w", "16", "15-1", "why")
	table.Number("not printed", 0, 3, "%.0f", "")
	a := table.Agreement()
	want := Agreement{Values: Count{1, 3}, Signs: Count{2, 2}, Orders: Count{3, 3}, Words: Count{1, 2}}
	if a != want {
		t.Errorf("%+v, want %+v", a, want)
	}
	if got := a.String(); got != "values 1 of 3 within 10 %, signs 2 of 2, orders 3 of 3, words 1 of 2" {
		t.Error(got)
	}
	table.Number("y", 3, 1, "%.0f", "").In("g") // the greatest in the paper: behind two of the three in ours
	if a := table.Agreement(); a.Orders != (Count{4, 6}) {
		t.Errorf("%+v: 3 is before 2, 1 and 0.5 in the paper; 1 is before 0.9 alone here", a.Orders)
	}
}

// Under another assumption a word may become the paper's; a value that the paper does not print stays uncounted.
func TestUnderCountsWhatIsPrinted(t *testing.T) {
	var table Table
	table.Word("w", "16", "15-1", "").Ablations = []Ablation{{Assumption: "x", Ours: "16"}}
	table.Number("not printed", 0, 3, "%.0f", "").Ablate("x", 4, "%.0f")
	under, ok := table.Under("x")
	if a := under.Agreement(); !ok || a.Words != (Count{1, 1}) {
		t.Errorf("%+v, %v; want the one word, the same", a, ok)
	}
}
