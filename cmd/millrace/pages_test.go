package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/pagetest"
)

// The pages of various trainings are consistent in a wide and in a narrow window. They agree with the Timelines that
// they are drawn from, and with what `report` prints on a terminal.
func TestThePagesOfRealTrainings(t *testing.T) {
	const line = "train --model mlp --data digits --profile mlp.json --batch 16 --micro-batch 4 --stages 2 --workers 2 " +
		"--steps 40 --eval-rows 64 --out run"
	var seen browsertest.Seen // what was seen on dark pages
	for name, lines := range map[string][]string{
		"plain":         {line + " --eval-every 10"},
		"one worker":    {strings.NewReplacer("--stages 2 ", "", "--workers 2", "--workers 1").Replace(line)},
		"four workers":  {strings.NewReplacer("--stages 2", "--stages 4", "--workers 2", "--workers 4").Replace(line)},
		"a V":           {line + " --schedule zb-v"},
		"replicas":      {strings.Replace(line, "--stages 2", "--stages 1", 1)},
		"elastic":       {line + " --pipelines 2 --eval-every 20"},
		"2bw":           {line + " --weights 2bw"},
		"stash":         {line + " --weights stash"},
		"latest":        {line + " --weights latest"},
		"two processes": {"launch -n 2 -- " + strings.Replace(line, "--workers 2 ", "", 1)},
		"resumed": {strings.Replace(line, "--steps 40", "--steps 20", 1) + " --save-every 10",
			line + " --resume run/checkpoints"},
		"one step":             {strings.Replace(line, "--steps 40", "--steps 1", 1)},
		"without its Timeline": {line},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := profiled(t)
			dir := filepath.Join(p.Dir, "run")
			for _, l := range lines {
				if code, said := started(t, p, l); code != 0 {
					t.Fatalf("%s: code %d\n%s", l, code, said)
				}
			}
			page := filepath.Join(dir, folder.ReportName)
			atOnce, err := os.ReadFile(page)
			if name == "without its Timeline" { // as if the run had been killed
				err = os.Remove(filepath.Join(dir, folder.TimelineName))
			}
			if err != nil {
				t.Fatal(err)
			}
			said := p.Run(t, []string{"report", "run"}, false)
			if later, err := os.ReadFile(page); err != nil || name != "without its Timeline" &&
				string(later) != string(atOnce) {
				t.Errorf("report draws another page than train did: %d bytes and %d (%v)", len(later), len(atOnce), err)
			}
			whole, err := folder.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			part := whole.Shown()
			views := []browser.View{{Width: 1280}, {Width: 400, Dark: true}}
			b := browsertest.Open(t, page, views[0])
			for i, v := range views {
				if i > 0 {
					b.Again(v)
				}
				pagetest.Agree(t, b, part.Measured, part.Plan.StepSamples())
				b.Fits()
				if v.Dark {
					seen.Accessible(b)
				} else {
					b.Accessible()
				}
				facts := strings.Join(b.Texts(".facts dt"), " ")
				for _, want := range []string{"model", "data", "plan", "optimizer", "seed", "began", "took", "engine", "host"} {
					if !strings.Contains(facts, want) {
						t.Errorf("nothing is said of %s, only of %s", want, facts)
					}
				}
				if resumed := strings.Contains(facts, "resumed from"); resumed != (name == "resumed") {
					t.Errorf("said is: %s", facts)
				}
				sameOnATerminal(t, b, said)
				if v.Width == 1280 && len(b.Texts("#versions:not([hidden])")) > 0 {
					weightsAreNamed(t, b, part.Plan.Weights)
				}
			}
		})
	}
}

// sameOnATerminal compares the facts and the numbers of a page with the terminal output.
func sameOnATerminal(t *testing.T, b *browsertest.Page, said string) {
	t.Helper()
	packed := func(text string) string { return strings.Join(strings.Fields(strings.ReplaceAll(text, "–", "")), "") }
	var missing []string
	for _, text := range append(b.Texts(".facts > div"), b.Texts(".numbers tbody tr")...) {
		if !strings.HasPrefix(text, "worker ") && !strings.Contains(packed(said), packed(text)) {
			missing = append(missing, text)
		}
	}
	if missing != nil {
		t.Errorf("the page says %q; the terminal:\n%s", missing, said)
	}
}

// weightsAreNamed checks that a page names the versions of weights that boxes use, and names them again for a chosen
// box.
func weightsAreNamed(t *testing.T, b *browsertest.Page, policy string) {
	t.Helper()
	b.Click("#versions")
	names := b.Texts("#versions-keys:not([hidden]) li")
	want := map[string][]string{"elastic": {"p0 w0", "p1 w0"}, "2bw": {"w−1"}}[policy]
	for _, one := range want {
		if !slices.Contains(names, one) {
			t.Errorf("%s: the weights are %q; want %s", policy, names, one)
		}
	}
	if len(names) == 0 {
		t.Errorf("%s: no weights are named", policy)
	}
	b.Eval("document.getElementById('timeline').focus()", nil)
	b.Press("ArrowRight")
	if text := b.Text("document.getElementById('details').textContent"); !strings.Contains(text, "It uses the weights ") {
		t.Errorf("%s: of a box is said %q", policy, text)
	}
	b.Accessible()
}
