// Package browsertest opens pages in a headless Chromium for tests.
//
// Input: the address of a page and how it is shown. Output: the page's content; any failure ends the test. At the
// end of a test a page must have no faults (see package browser). One browser serves all tests of a binary. A test
// is skipped with a message if the machine has no Chromium, or if MILLRACE_BROWSER=none. scripts/browser.sh, which
// `make test` calls, installs what is missing.
package browsertest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/internal/browser"
)

// Views are the four views in which every page is tested: desk and phone, light and dark.
var Views = []browser.View{{Width: 1280}, {Width: 1280, Dark: true}, {Width: 400}, {Width: 400, Dark: true}}

var start = sync.OnceValues(browser.Start)

// Page is an open page of one test.
type Page struct {
	t    testing.TB
	page *browser.Page
}

// Open opens a file or URL. At the end of the test the page is closed, and its faults fail the test.
func Open(t testing.TB, address string, v browser.View) *Page {
	t.Helper()
	if os.Getenv("MILLRACE_BROWSER") == "none" {
		t.Skip("MILLRACE_BROWSER=none: no page is opened")
	}
	b, err := start()
	if errors.Is(err, browser.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	page, err := b.Open(address, v)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fault := range page.Faults() {
			t.Errorf("%s, %v: %s", filepath.Base(address), v, fault)
		}
		page.Close()
	})
	return &Page{t, page}
}

// Each opens a page in each of Views, as a subtest, and passes it to the function `test`.
func Each(t *testing.T, address string, test func(t *testing.T, p *Page, v browser.View)) {
	t.Helper()
	for _, v := range Views {
		t.Run(strings.ReplaceAll(v.String(), " ", "-"), func(t *testing.T) { test(t, Open(t, address, v), v) })
	}
}

// Again loads the page again in another view. Unlike Open it starts no new process, and it keeps what the page has
// stored.
func (p *Page) Again(v browser.View) {
	p.t.Helper()
	p.check(p.page.Again(v))
}

// check ends the test if there is an error.
func (p *Page) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// Eval evaluates JavaScript and decodes the result into `into`. If the result is a promise, Eval awaits it. If `into`
// is nil, the result is discarded.
func (p *Page) Eval(js string, into any) {
	p.t.Helper()
	p.check(p.page.Eval(js, into))
}

// Text evaluates JavaScript and returns the resulting string.
func (p *Page) Text(js string) string {
	p.t.Helper()
	var text string
	p.Eval(js, &text)
	return text
}

// Texts returns the text of every element that matches a CSS selector, with each run of white space as one blank.
func (p *Page) Texts(selector string) []string {
	p.t.Helper()
	var texts []string
	p.Eval("[...document.querySelectorAll(`"+selector+"`)].map(e => e.textContent.trim().replace(/\\s+/g, ' '))", &texts)
	return texts
}

// Wait waits until a JavaScript expression is true.
func (p *Page) Wait(js string) {
	p.t.Helper()
	p.check(p.page.Wait(js))
}

// Click clicks the first element that matches a CSS selector.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.check(p.page.Click(selector))
}

// Hover moves the mouse into an element: (0, 0) is its top left corner, (1, 1) its bottom right.
func (p *Page) Hover(selector string, x, y float64) {
	p.t.Helper()
	p.check(p.page.Hover(selector, x, y))
}

// Press presses keys. A name is a key such as ArrowLeft, Enter or Tab, or a text to type.
func (p *Page) Press(names ...string) {
	p.t.Helper()
	p.check(p.page.Press(names...))
}

// Picture returns a PNG of the visible part of the page. If `whole` is true, it returns a PNG of the whole page.
func (p *Page) Picture(whole bool) []byte {
	p.t.Helper()
	png, err := p.page.Picture(whole)
	p.check(err)
	return png
}

// PDF returns the page printed on A4.
func (p *Page) PDF() []byte {
	p.t.Helper()
	pdf, err := p.page.PDF()
	p.check(err)
	return pdf
}

// Fits fails the test if the page is wider than its window, so that something is cut off or needs sideways
// scrolling.
func (p *Page) Fits() {
	p.t.Helper()
	var size struct{ Page, Window float64 }
	p.Eval("({ Page: document.documentElement.scrollWidth, Window: document.documentElement.clientWidth })", &size)
	if size.Page > size.Window {
		p.t.Errorf("the page is %g pixels wide in a window of %g", size.Page, size.Window)
	}
}

// Accessible fails the test if axe-core finds a violation of serious or critical impact.
func (p *Page) Accessible() {
	p.t.Helper()
	axe, err := source()
	if err != nil {
		p.t.Fatalf("%v; scripts/browser.sh fetches it", err)
	}
	found, err := p.page.Audit(axe)
	p.check(err)
	for _, v := range found {
		p.t.Error(v)
	}
}

// Seen remembers the kinds of elements of the pages that were audited. A page with no new kind need not be audited
// again, because the same code made it. A kind is an element's name, its classes, the name of its parent, and whether
// its content is wider than itself. The zero value has seen nothing. Tests that run at once may share it.
type Seen struct {
	mu    sync.Mutex
	kinds map[string]bool
}

// Accessible checks a page as Page.Accessible does, if it has a kind of element that Seen does not know. It says
// whether the page was audited.
func (s *Seen) Accessible(p *Page) bool {
	p.t.Helper()
	var kinds []string
	p.Eval(`[...new Set([...document.body.querySelectorAll("*")].map(e => [e.parentElement.localName, e.localName,
		...[...e.classList].sort(), e.scrollWidth > e.clientWidth].join(" ")))]`, &kinds)
	s.mu.Lock()
	known := len(s.kinds)
	if s.kinds == nil {
		s.kinds = map[string]bool{}
	}
	for _, kind := range kinds {
		s.kinds[kind] = true
	}
	more := len(s.kinds) > known
	s.mu.Unlock()
	if more {
		p.Accessible()
	}
	return more
}

// source returns the source of axe-core, from the build folder of the test's module.
var source = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil || at == filepath.Dir(at) {
			text, err := os.ReadFile(filepath.Join(at, "build", "axe.min.js"))
			return string(text), err
		}
	}
})
