// Package browsertest has tests open pages in a headless Chromium.
//
// In: the address of a page and how it is looked at. Out: what the page says and shows; whatever fails ends the test.
// At its end a page must have no faults (package browser says which there are). One browser serves all tests of a
// binary. A test is skipped, with a sentence, where the machine has no Chromium, or MILLRACE_BROWSER=none asks for it;
// scripts/browser.sh, which `make test` calls, installs what is missing.
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

// Views are those that every page is looked at in: of a desk and of a phone, light and dark.
var Views = []browser.View{{Width: 1280}, {Width: 1280, Dark: true}, {Width: 400}, {Width: 400, Dark: true}}

var start = sync.OnceValues(browser.Start)

// Page is an open one, for one test.
type Page struct {
	t    testing.TB
	page *browser.Page
}

// Open opens a file or URL. At the test's end the page is closed, and its faults are the test's.
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

// Each opens a page in each of Views, as a test of its own, and gives it to test.
func Each(t *testing.T, address string, test func(t *testing.T, p *Page, v browser.View)) {
	t.Helper()
	for _, v := range Views {
		t.Run(strings.ReplaceAll(v.String(), " ", "-"), func(t *testing.T) { test(t, Open(t, address, v), v) })
	}
}

// check ends the test where something failed.
func (p *Page) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// Eval evaluates JavaScript, awaits it, and decodes what comes of it into what is pointed at; nil: it is thrown away.
func (p *Page) Eval(js string, into any) {
	p.t.Helper()
	p.check(p.page.Eval(js, into))
}

// Text evaluates JavaScript to a string.
func (p *Page) Text(js string) string {
	p.t.Helper()
	var text string
	p.Eval(js, &text)
	return text
}

// Texts is the text of every element that a CSS selector finds, its white space made single blanks.
func (p *Page) Texts(selector string) []string {
	p.t.Helper()
	var texts []string
	p.Eval("[...document.querySelectorAll(`"+selector+"`)].map(e => e.textContent.trim().replace(/\\s+/g, ' '))", &texts)
	return texts
}

// Wait waits until an expression of JavaScript is true.
func (p *Page) Wait(js string) {
	p.t.Helper()
	p.check(p.page.Wait(js))
}

// Click clicks the first element that a CSS selector finds.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.check(p.page.Click(selector))
}

// Hover moves the mouse into an element: 0, 0 is its top left, 1, 1 its bottom right.
func (p *Page) Hover(selector string, x, y float64) {
	p.t.Helper()
	p.check(p.page.Hover(selector, x, y))
}

// Press presses keys: names such as ArrowLeft, Enter and Tab, or what to type.
func (p *Page) Press(names ...string) {
	p.t.Helper()
	p.check(p.page.Press(names...))
}

// Picture is a PNG of what is to be seen; with whole, of all that could be scrolled to.
func (p *Page) Picture(whole bool) []byte {
	p.t.Helper()
	png, err := p.page.Picture(whole)
	p.check(err)
	return png
}

// PDF is the page printed on A4.
func (p *Page) PDF() []byte {
	p.t.Helper()
	pdf, err := p.page.PDF()
	p.check(err)
	return pdf
}

// Fits fails where the page is wider than it is looked at: something is cut, or must be scrolled to sideways.
func (p *Page) Fits() {
	p.t.Helper()
	var size struct{ Page, Window float64 }
	p.Eval("({ Page: document.documentElement.scrollWidth, Window: document.documentElement.clientWidth })", &size)
	if size.Page > size.Window {
		p.t.Errorf("the page is %g pixels wide in a window of %g", size.Page, size.Window)
	}
}

// Accessible fails where axe-core finds something of serious or critical impact.
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

// source is axe-core, from the build folder of the module that the test is in.
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
