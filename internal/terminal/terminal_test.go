package terminal

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWordsAndNumbers(t *testing.T) {
	for want, got := range map[string]string{
		"1 worker": Count(1, "worker"), "0 workers": Count(0, "worker"), "2 micro-batches": Count(2, "micro-batch"),
		"3 processes": Count(3, "process"), "2 entries": Count(2, "entry"), "2 days": Count(2, "day"),
		"12,000 samples": Count(12000, "sample"), "2 boxes": Count(2, "box"), "5 stages": Count(5, "stage"),
		"1.00": Number(1, 3), "241.6": Number(241.62, 4), "112,300": Number(112345, 4), "0.0123": Number(.01234, 3),
		"10.0": Number(9.996, 3), "-1,000": Number(-999.7, 3), "0": Number(0, 3), "7": Number(6.6, 0),
		"100":    Number(99.97, 3),
		"NaN":    Number(nan(), 3),
		"1.23 M": Scaled(1234567), "999": Scaled(999), "1.00 k": Scaled(999.6), "2.5": Scaled(2.5),
		"450 µs": Duration(450e-6), "12.3 ms": Duration(.01234), "1.00 s": Duration(1),
		"1.000 ms": Number(.9999995, 4) + " ms",
		"0 s":      Duration(0), "40.0 ns": Duration(40e-9), "99.9 s": Duration(99.94), "1m40s": Duration(99.96),
		"2m14s": Duration(134.4), "1h00m": Duration(3599.6), "1h05m": Duration(3900), "2d03h": Duration(51 * 3600),
		"-2m05s": Duration(-125),
		"0.4213": Loss(.42129), "0.0000": Loss(0), "0.0001": Loss(1e-4), "4.54e-7": Loss(4.54e-7), "-9.90e-5": Loss(-9.9e-5),
		"12.5000": Loss(12.5), "1.23e+5": Loss(123456), "+Inf": Loss(math.Inf(1)),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func nan() float64 { var z float64; return z / z }

func TestWidthCountsColumnsOfTheTerminal(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "\x1b[1mabc\x1b[0m": 3, "网络": 4, "é": 1, "µs": 2, "─": 1} {
		if got := Width(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{{"abcdef", 4, "abc…"}, {"abcd", 4, "abcd"}, {"网络网络", 5, "网络…"}, {"网络网络", 4, "网…"}, {"abc", 1, "…"}} {
		if got := Clip(c.text, c.columns, "…"); got != c.want {
			t.Errorf("%q in %d columns is %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

func TestProseIsWrappedAtWordsWithAHangingIndent(t *testing.T) {
	s := Screen{Columns: 40}
	got := s.Wrap("why: ", "     ", "the last stage holds everything, "+
		"and the others wait 972\u00a0ms for it\nsee /a/path/that/is/much/longer/than/any/line/of/forty/columns now")
	want := `why: the last stage holds everything,
     and the others wait 972 ms for it
     see
/a/path/that/is/much/longer/than/any/line/of/forty/columns
     now
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	got = s.Wrap("library  ", "         ", "1.13 /usr/lib/thirty/four/columns/of.so and on")
	if want := "library  1.13\n      /usr/lib/thirty/four/columns/of.so\n         and on\n"; got != want {
		t.Errorf("got\n%s", got)
	}
	got = s.Facts([][2]string{{"plan", "1f1b on two workers, which hold three"}, {"none", ""}, {"batch", "8"}})
	if want := "plan   1f1b on two workers, which hold\n       three\nbatch  8\n"; got != want {
		t.Errorf("got\n%s", got)
	}
	got = s.Wrap("", "", "the busiest of all workers now waits 282 ms, not 240 ms (11.3 %), and holds 3 MiB")
	if want := "the busiest of all workers now waits\n282 ms, not 240 ms (11.3 %), and holds\n3 MiB\n"; got != want {
		t.Errorf("got\n%s", got)
	}
	if n := len(strings.Split(Screen{Columns: 400}.Wrap("", "", strings.Repeat("word ", 44)), "\n")) - 1; n != 2 {
		t.Errorf("220 columns of prose took %d lines, and lines have at most 110", n)
	}
	coloured := Screen{Columns: 40, Colour: true}
	text := strings.Repeat(coloured.Paint(Red, "abcd")+" ", 8)
	if got := coloured.Wrap("", "", text); strings.Count(got, "\n") != 1 {
		t.Errorf("colours were counted as columns: %q", got)
	}
}

func TestLinesThatAreTooWideAreBrokenAtWordsBehindTheirOwnIndent(t *testing.T) {
	s := Screen{Columns: 40}
	text := "short  as it is\n  worker 1 waits for micro-batch 3 of worker 0, stage 0\n"
	want := "[1] short  as it is\n[1]   worker 1 waits for micro-batch 3\n[1]   of worker 0, stage 0\n[1] "
	if got := s.Fit("[1] ", text); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := s.Fit("", text); strings.Count(got, "\n") != 3 || !strings.HasSuffix(got, "\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestAScreenThatIsNoTerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range []Screen{Of(f), Of(&bytes.Buffer{})} {
		if s != (Screen{Columns: Default}) || s.Paint(Red, "x") != "x" {
			t.Errorf("got %+v", s)
		}
	}
}

func rivals() *Table {
	t := &Table{Columns: []Column{{Heading: "plan"}, {Heading: "predicted", Unit: "ms", Group: "step", Number: true},
		{Heading: "measured", Unit: "ms", Group: "step", Number: true},
		{Heading: "of one worker", Unit: "MiB", Group: "memory", Number: true, Spare: 2},
		{Heading: "never", Spare: 1}, {Heading: "why not", Wraps: true}}}
	t.AddMarked("1f1b on 2", "12.5", "13.1", "100", "", "chosen")
	t.Add("dp 网络", "120.0", "", "1,220", "", "every replica sums all gradients at the end of the step")
	return t
}

func drawn(t *Table, s Screen) string {
	var b strings.Builder
	_ = t.Write(&b, s) // a Builder has no errors
	return b.String()
}

func TestATableFitsItsScreen(t *testing.T) {
	for columns, want := range map[int]string{
		120: `             ──── step, ms ─────    memory, MiB
  plan       predicted  measured  of one worker  why not
> 1f1b on 2       12.5      13.1            100  chosen
  dp 网络        120.0                    1,220  every replica sums all gradients at the end of the step
`,
		80: `             ──── step, ms ─────    memory, MiB
  plan       predicted  measured  of one worker  why not
> 1f1b on 2       12.5      13.1            100  chosen
  dp 网络        120.0                    1,220  every replica sums all
                                                 gradients at the end of the
                                                 step
`,
		62: `             ──── step, ms ─────
  plan       predicted  measured  why not
> 1f1b on 2       12.5      13.1  chosen
  dp 网络        120.0            every replica sums all
                                  gradients at the end of the
                                  step
  (memory of one worker: not shown in 62 columns)
`,
	} {
		if got := drawn(rivals(), Screen{Columns: columns}); got != want {
			t.Errorf("in %d columns:\n%s\nwant\n%s", columns, got, want)
		}
	}
}

func TestUnitsOfAGroupThatDifferStandBelowTheHeadings(t *testing.T) {
	table := &Table{Columns: []Column{{Heading: "layer"}, {Heading: "forward", Unit: "ms", Group: "one micro-batch",
		Number: true}, {Heading: "saved", Unit: "MiB", Group: "one micro-batch", Number: true}}}
	table.Add("dense", "1.5", "20")
	table.AddFaint("relu", "0.1")
	want := `         one micro-batch
  layer  forward   saved
              ms     MiB
  dense      1.5      20
  relu       0.1
`
	if got := drawn(table, Screen{Columns: 80}); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := drawn(table, Screen{Columns: 80, Colour: true}); !strings.Contains(got, "\x1b[2m  relu       0.1\x1b[0m") {
		t.Errorf("got %q", got)
	}
	if got := drawn(&Table{Columns: table.Columns}, Screen{Columns: 80}); got != "" {
		t.Errorf("a table without rows is %q", got)
	}
}

// TestColumnsLeftOutAreNamedInOneLine: a group is named once, and Shows says which columns are left.
func TestColumnsLeftOutAreNamedInOneLine(t *testing.T) {
	table := &Table{Columns: []Column{{Heading: "schedule"}, {Heading: "time", Group: "step"},
		{Heading: "bubble", Group: "step", Spare: 1}, {Heading: "in flight", Group: "at most", Spare: 2},
		{Heading: "versions", Group: "at most", Spare: 3}}}
	table.Add(strings.Repeat("a", 20), strings.Repeat("b", 14), "1", "2", "3")
	screen := Screen{Columns: 40}
	want := "\n  (step bubble, at most in flight,\n  versions: not shown in 40 columns)\n"
	if got := drawn(table, screen); !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s", got)
	}
	if !table.Shows(screen, "time") || table.Shows(screen, "bubble") || !table.Shows(Screen{Columns: 100}, "versions") {
		t.Error("Shows differs from what is shown")
	}
}

// TestATableOfOneGroupIsNotEmpty: if a table's only group of columns is too wide, one of its columns is still shown.
func TestATableOfOneGroupIsNotEmpty(t *testing.T) {
	table := &Table{Columns: []Column{{Heading: "here", Group: "step", Spare: 1}, {Heading: "there", Group: "step",
		Spare: 1}}}
	table.Add("a", strings.Repeat("b", 39))
	want := "here\n  a\n  (step there: not shown in 40 columns)"
	if got := drawn(table, Screen{Columns: 40}); !strings.Contains(got, want) {
		t.Errorf("got\n%s", got)
	}
}

// TestAnyTableFits: no line of any table is wider than its screen, apart from the note about columns that are left out.
// Everything is shown unless there is such a note.
func TestAnyTableFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-z网é]{1,30}`)
		text := rapid.Map(rapid.SliceOfN(word, 0, 8), func(w []string) string { return strings.Join(w, " ") })
		table := &Table{}
		for i := range rapid.IntRange(1, 9).Draw(t, "columns") {
			table.Columns = append(table.Columns, Column{Heading: text.Draw(t, "heading"),
				Unit:  rapid.SampledFrom([]string{"", "ms"}).Draw(t, "unit"),
				Group: rapid.SampledFrom([]string{"", "step", "a long name of a group"}).Draw(t, "group"),
				Wraps: rapid.Bool().Draw(t, "wraps"), Number: rapid.Bool().Draw(t, "number"),
				Spare: rapid.IntRange(0, i).Draw(t, "spare")})
		}
		var want [][]string
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			cells := rapid.SliceOfN(text, len(table.Columns), len(table.Columns)).Draw(t, "cells")
			want = append(want, slices.Clone(cells))
			table.Add(cells...)
		}
		columns := rapid.IntRange(Narrow, 200).Draw(t, "width")
		got := drawn(table, Screen{Columns: columns})
		for line := range strings.Lines(got) {
			if n := Width(strings.TrimSuffix(line, "\n")); n > columns && !strings.HasPrefix(line, "  (") {
				t.Fatalf("%d columns in a line of a screen of %d:\n%s", n, columns, got)
			}
		}
		letters := func(s string) int { return len(strings.Map(letter, s)) }
		if n := 0; !strings.Contains(strings.Join(strings.Fields(got), " "), "not shown in") {
			for _, cells := range want {
				n += letters(strings.Join(cells, ""))
			}
			for i, c := range table.Columns {
				if slices.ContainsFunc(want, func(cells []string) bool { return cells[i] != "" }) {
					n += letters(c.Heading)
				}
			}
			if letters(got) < n { // `n` does not count headings of groups, or units
				t.Fatalf("%d letters of %d:\n%s", letters(got), n, got)
			}
		}
	})
}

func letter(r rune) rune {
	if strings.ContainsRune(" \n─,", r) {
		return -1
	}
	return r
}

// TestBytesInThreeDigits: amounts have three digits. Exceptions are whole bytes, and values above the largest unit.
func TestBytesInThreeDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "0.977 KiB", 1 << 10: "1.00 KiB",
		1000 << 10: "0.977 MiB", 999 << 10: "999 KiB", -1000 << 10: "-0.977 MiB", 3 << 29: "1.50 GiB",
		16 << 30: "16.0 GiB", 1<<30 - 1: "1.00 GiB", 1 << 60: "1,048,576 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d bytes are %s; want %s", n, got, want)
		}
	}
}

func TestCountsOfOne(t *testing.T) {
	for text, want := range map[string]string{
		"1 workers":                                     "1 worker",
		"plan: 3 stages; it has 1 layers":               "plan: 3 stages; it has 1 layer",
		"(1 bytes), 11 bytes, 0.1 steps":                "(1 byte), 11 bytes, 0.1 steps",
		"step-1 layers on 1 micro-batches of 1 samples": "step-1 layers on 1 micro-batch of 1 sample",
		"1 processes, 1 minibatches, 2,1 hosts":         "1 process, 1 minibatch, 2,1 hosts",
		"1 workersmith":                                 "1 workersmith",
	} {
		if got := Singular(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := And([]int{0}) + "; " + And([]int{0, 1}) + "; " + And([]int{4, 5, 9}); got != "0; 0 and 1; 4, 5 and 9" {
		t.Error(got)
	}
}

// TestLongWordsAreCutAtHyphens: a word that is wider than its column is cut after a hyphen or a slash. If a part is
// still too wide, it is cut at any place. A word that fits is never cut.
func TestLongWordsAreCutAtHyphens(t *testing.T) {
	for text, want := range map[string][]string{
		"Debian's dataset-fashion-mnist": {"Debian's", "dataset-fashion-", "mnist"},
		"in /usr/share/datasets/digits":  {"in", "/usr/share/", "datasets/digits"},
		"zb-h1 and dp-overlap-long":      {"zb-h1 and", "dp-overlap-long"},
		"abcdefghijklmnopqrst-u":         {"abcdefghijklmnop", "qrst-u"},
	} {
		if got := broken(text, 16); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
