package browsertest

import (
	"bytes"
	"errors"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/browser"
)

// write writes a page to a file and returns its path.
func write(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page with blanks.html")
	text := `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>a page</title>` + body
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAPageIsUsedAndLookedAt(t *testing.T) {
	file := write(t, `<style>body { margin: 0; background: #fff }
		@media (prefers-color-scheme: dark) { body { background: #123456; color: #fff } } div { height: 2000px }</style>
		<main><h1>A</h1><button onclick="this.textContent = 'clicked'">b</button> <input aria-label="in"><p>one
		two<div id="over" onmousemove="this.title = event.offsetX"></div></main>`)
	Each(t, file, func(t *testing.T, p *Page, v browser.View) {
		var width int
		if p.Eval("innerWidth", &width); width != v.Width {
			t.Errorf("%d pixels wide", width)
		}
		p.Click("button")
		if got := p.Texts("button, p"); len(got) != 2 || got[0] != "clicked" || got[1] != "one two" {
			t.Errorf("texts %q", got)
		}
		p.Press("Tab", "xy", "ArrowLeft", "z")
		if got := p.Text("document.querySelector('input').value"); got != "xzy" {
			t.Errorf("typed %q", got)
		}
		p.Hover("#over", 0.25, 0.5)
		var at float64
		if p.Eval("+document.querySelector('#over').title", &at); at != float64(v.Width)/4 {
			t.Errorf("the mouse is at %g", at)
		}
		p.Eval("setTimeout(() => { window.later = 1 }, 20)", nil)
		p.Wait("window.later")
		p.Fits()
		p.Accessible()
		picture, err := png.Decode(bytes.NewReader(p.Picture(true)))
		if err != nil {
			t.Fatal(err)
		}
		size := picture.Bounds()
		r, g, b, _ := picture.At(size.Dx()-1, size.Dy()-1).RGBA()
		if dark := r>>8 == 0x12 && g>>8 == 0x34 && b>>8 == 0x56; size.Dx() != v.Width || size.Dy() < 2000 || dark != v.Dark {
			t.Errorf("the picture is of %v, dark: %v", size, dark)
		}
		if pdf := p.PDF(); !bytes.HasPrefix(pdf, []byte("%PDF")) {
			t.Errorf("no PDF: %.20q", pdf)
		}
	})
}

// failing records the message that a test would fail with.
type failing struct {
	*testing.T
	said string
}

func (f *failing) Errorf(format string, args ...any) { f.said += strings.TrimSpace(format) }
func (f *failing) Error(args ...any) {
	for _, a := range args {
		f.said += a.(browser.Violation).String()
	}
}

func TestWhatIsWrongIsFound(t *testing.T) {
	p := Open(t, write(t, `<main><h1>A</h1><div style="width: 2000px"><img src="data:image/gif;base64,"></div></main>`),
		browser.View{Width: 400})
	wrong := &failing{T: t}
	p.t = wrong
	p.Fits()
	p.Accessible()
	for _, want := range []string{"pixels wide", "image-alt (critical)"} {
		if !strings.Contains(wrong.said, want) {
			t.Errorf("%q is not found, only %s", want, wrong.said)
		}
	}
}

func TestFaultsAreFound(t *testing.T) {
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing.js" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><p>served` + r.URL.RawQuery))
	}))
	defer served.Close()
	Open(t, served.URL, browser.View{Width: 400}) // this page has no faults
	for _, c := range []struct{ script, want string }{
		{`console.error("bad", 3)`, "console: bad 3"},
		{`setTimeout(() => nothing.here)`, "nothing is not defined"},
		{`fetch("http://example.com/x").catch(() => {})`, "leaves this machine: http://example.com/x"},
		{`document.head.append(Object.assign(document.createElement("script"), {src: "/missing.js"}))`, "404"},
		{`console.log("fine"); fetch("/?2").then(() => fetch("data:,x")).then(() => 0)`, ""},
	} {
		b, err := start()
		if errors.Is(err, browser.ErrMissing) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		page, err := b.Open(served.URL, browser.View{Width: 400})
		if err != nil {
			t.Fatal(err)
		}
		if err := page.Eval(c.script, nil); err != nil {
			t.Error(err)
		}
		got := strings.Join(page.Faults(), "\n")
		for until := time.Now().Add(time.Minute); c.want != "" && !strings.Contains(got, c.want) &&
			time.Now().Before(until); got = strings.Join(page.Faults(), "\n") {
			time.Sleep(10 * time.Millisecond) // the browser reports faults after a delay
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: faults %q", c.script, got)
		}
		page.Close()
	}
}

// TestAPageIsLoadedAgainInAnotherView: the page then has the view's width and theme, and its script has begun anew.
func TestAPageIsLoadedAgainInAnotherView(t *testing.T) {
	p := Open(t, write(t, `<main><h1>A</h1></main>`), browser.View{Width: 1280})
	p.Eval("window.old = 1", nil)
	p.Again(browser.View{Width: 400, Dark: true})
	const seen = "`${innerWidth} ${matchMedia('(prefers-color-scheme: dark)').matches} ${window.old}`"
	if got := p.Text(seen); got != "400 true undefined" {
		t.Error(got)
	}
}

// TestOnlyNewKindsAreAudited: of pages with the same kinds of elements only the first is audited. An element is of
// another kind if it has another class, is in another element, or has content that is wider than the element.
func TestOnlyNewKindsAreAudited(t *testing.T) {
	const plain = `<main><h1>A</h1><p>one</p>`
	var seen Seen
	for _, of := range []struct {
		body string
		new  bool
	}{
		{plain, true}, {plain, false}, {plain + `<p>two</p>`, false}, {plain + `<p class="b">two</p>`, true},
		{plain + `<div><p>two</p></div>`, true}, {plain + `<div><p>three</p></div>`, false},
		{plain + `<div style="width: 9px; overflow: auto" tabindex="0"><p>three</p></div>`, true}, {plain, false},
	} {
		wrong := &failing{T: t}
		p := Open(t, write(t, of.body+`<img src="data:image/gif;base64,">`), browser.View{Width: 400})
		p.t = wrong
		if got := seen.Accessible(p); got != of.new || got != strings.Contains(wrong.said, "image-alt") {
			t.Errorf("%s: audited: %v, want %v; found %q", of.body, got, of.new, wrong.said)
		}
	}
}
