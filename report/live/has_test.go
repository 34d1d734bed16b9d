package live

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// tab keeps what it is sent, like the page's store.js.
type tab struct {
	drawn map[string]map[string]string // by run, and by part of the run's data
	have  string
	draw  []string
	show  string
}

// ask changes which runs the page draws, and which run it shows alone. The page forgets the runs that it no longer
// draws, and takes them out of its cursor.
func (p *tab) ask(draw []string, show string) {
	if show != "" && !slices.Contains(draw, show) {
		draw = append(draw, show)
	}
	p.draw, p.show = draw, show
	c := parseCursor(p.have)
	for id := range p.drawn {
		if !slices.Contains(draw, id) {
			delete(p.drawn, id)
			delete(c.of, id)
		}
	}
	if p.have != "" {
		p.have = c.text()
	}
}

func (p *tab) take(t *testing.T, n news) {
	t.Helper()
	for _, d := range n.Drawn {
		is := p.drawn[d.ID]
		if is == nil || d.Fresh {
			is = map[string]string{"details": is["details"]}
			p.drawn[d.ID] = is
		}
		var s sentSeries
		if d.Steps != nil {
			if err := json.Unmarshal(d.Steps, &s); err != nil {
				t.Fatal(err)
			}
			is["steps"] = fmt.Sprint(s.From + len(s.Step))
		}
		if d.Numbers != nil {
			text, _ := json.Marshal(d.Numbers)
			is["numbers"] = string(text)
		}
		if d.Predicted != nil {
			is["predicted"] = string(d.Predicted)
		}
		if d.Measured != nil {
			is["measured"] = string(d.Measured)
		}
	}
	for _, d := range n.Details {
		if is := p.drawn[d.ID]; is != nil {
			text, _ := json.Marshal(d)
			is["details"] = string(text)
		}
	}
}

// holds fails if a page lacks any part of a run that it draws, or has a wrong one. It returns the number of runs that
// are shown alone.
func (p *tab) holds(t *testing.T, s *Shelf) (shown int) {
	t.Helper()
	for _, id := range p.draw {
		r := s.byID[id]
		if r == nil {
			continue
		}
		f := r.follower
		about, _ := json.Marshal(f.detail(id))
		numbers, _ := json.Marshal(f.measured().shown())
		want := map[string]string{"details": string(about), "steps": fmt.Sprint(len(f.steps.parts))}
		if id == p.show {
			shown++
			want["numbers"] = string(numbers)
			for which, name := range []string{"predicted", "measured"} {
				if f.drawn[which].shown > 0 {
					want[name] = string(orNull(f.drawn[which].json))
				}
			}
		}
		for part, text := range want {
			if got := p.drawn[id][part]; got != text {
				t.Fatalf("the page that shows %q draws %s: of its %s it has %.80q, and not %.80q", p.show, id, part, got, text)
			}
		}
	}
	return shown
}

// change changes the files of a run, or moves its folder away or back. `away` is the folder that is away now; "" if
// none is. The result is the folder that is away after the change.
func change(t *testing.T, dir string, how int, random *rand.Rand, away string) string {
	t.Helper()
	metrics, beside := filepath.Join(dir, folder.MetricsName), filepath.Dir(dir)+"-away"
	switch {
	case how == 6:
		step := tracetest.TwoStages()
		step.Source, step.Noise, step.Seed = "run", .1, random.Uint64()
		_ = step.Timeline().WriteFile(filepath.Join(dir, folder.StepName)) // this fails if the folder is away
	case how == 9 && away != "":
		if err := os.Rename(beside, away); err != nil {
			t.Fatal(err)
		}
		return ""
	case away != "":
	case how == 7:
		add(t, metrics, stepLine(120+random.IntN(100), 1))
	case how == 8: // a new metrics file replaces the old one
		write(t, metrics+".new", stepLine(0, 1))
		if err := os.Rename(metrics+".new", metrics); err != nil {
			t.Fatal(err)
		}
	case how == 9:
		if err := os.Rename(dir, beside); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	return away
}

// Every page has the current files of each run that it draws. Pages open the list and runs in any order, while files
// change, disappear and come back. What other pages were sent, or what a page showed before, makes no difference.
func TestAPageHasWhatItIsSent(t *testing.T) {
	root := t.TempDir()
	names := []string{"a", "bb", "ccc"}
	var ids []string
	for _, name := range names {
		ids = append(ids, IDOf(trained(t, root, name, name != "ccc")))
	}
	s, err := New([]string{root})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	random := rand.New(rand.NewPCG(1, 2))
	pages := []*tab{{drawn: map[string]map[string]string{}}, {drawn: map[string]map[string]string{}}}
	now := time.Now()
	poll := func() {
		now = now.Add(time.Hour) // every run is due to be read
		s.poll(now)
	}
	away, shown := "", 0
	for range 400 {
		p := pages[random.IntN(2)]
		dir := filepath.Join(root, names[random.IntN(3)])
		switch k := random.IntN(10); {
		case k < 2:
			p.ask(slices.Clone(ids[:random.IntN(4)]), "")
		case k < 6:
			p.ask(nil, ids[random.IntN(3)])
		default:
			away = change(t, dir, k, random, away)
			poll()
		}
		for _, p := range pages { // this counts the pages that show a run, as enter and leave do
			if r := s.byID[p.show]; r != nil {
				r.drawn++
			}
		}
		poll()
		for _, r := range s.runs {
			r.drawn = 0
		}
		if random.IntN(3) == 0 {
			continue // the page is hidden or disconnected
		}
		n, next, any := s.since(parseCursor(p.have), p.draw, p.show, now)
		if any {
			p.take(t, n)
			p.have = next.text()
		}
		shown += p.holds(t, s)
	}
	if shown < 100 {
		t.Errorf("a run was shown by itself %d times", shown)
	}
}

// A run that is clicked in the list a second time, or in a second browser, shows its numbers, its memory and its steps.
func TestARunIsClickedAgain(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"one", "other"} {
		trained(t, root, name, true)
	}
	_, server := shelfOf(t, root)
	for range 2 {
		p := browsertest.Open(t, server.URL, browser.View{Width: 1280})
		for range 2 {
			p.Wait(`document.querySelectorAll(".plans .of").length === 2 && document.querySelector(".runs tbody a")`)
			p.Click(".runs tbody a")
			p.Wait(`document.querySelector("h1").textContent.endsWith("/one") && !document.querySelector("#single").hidden`)
			p.Wait(`document.querySelectorAll("#single .card").length === 6 &&
				document.querySelectorAll("#single .bars-of-memory .memory").length === 2 &&
				/^Measured numbers are medians over/.test(document.querySelector("#single p.muted").textContent) &&
				document.getElementById("timeline")?.clientHeight > 150`)
			p.Click("#all-runs")
			p.Wait(`!document.getElementById("overview").hidden`)
		}
	}
}
