package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Eval evaluates JavaScript and decodes the result into `into`. If the result is a promise, Eval awaits it. If `into`
// is nil, the result is discarded.
func (p *Page) Eval(js string, into any) error {
	if into == nil {
		if err := p.do(chromedp.Evaluate[chromedp.Void](js, chromedp.EvalAwaitPromise)); err != nil {
			return fmt.Errorf("%s: %w", short(js), err)
		}
		return nil
	}
	raw, err := ask(p, chromedp.Evaluate[[]byte](js, chromedp.EvalAwaitPromise))
	if err != nil {
		return fmt.Errorf("%s: %w", short(js), err)
	}
	if len(raw) == 0 {
		return fmt.Errorf("%s: undefined", short(js))
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %s: %w", short(js), short(string(raw)), err)
	}
	return nil
}

// short shortens a text for a message.
func short(text string) string {
	if text = strings.Join(strings.Fields(text), " "); len(text) > 200 {
		text = text[:200] + "..."
	}
	return text
}

// Settle waits until the page has drawn all changes.
func (p *Page) Settle() error {
	return p.Eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))", nil)
}

// Wait waits until a JavaScript expression is true.
func (p *Page) Wait(js string) error {
	if err := p.do(chromedp.Poll[chromedp.Void](js, chromedp.WithPollingTimeout(patience))); err != nil {
		return fmt.Errorf("waiting for %s: %w", short(js), err)
	}
	return nil
}

// Click scrolls to the first element that matches a CSS selector, and clicks its middle.
func (p *Page) Click(selector string) error {
	if err := p.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible)); err != nil {
		return fmt.Errorf("clicking %s: %w", selector, err)
	}
	return p.Settle()
}

// Hover scrolls to an element and moves the mouse to a place in it: (0, 0) is the top left corner, (1, 1) the bottom
// right.
func (p *Page) Hover(selector string, x, y float64) error {
	name, err := json.Marshal(selector)
	if err != nil {
		return err
	}
	var box struct{ X, Y, Width, Height float64 }
	if err := p.Eval(fmt.Sprintf(`(() => { const e = document.querySelector(%s)
		e.scrollIntoView({block: "center", behavior: "instant"})
		const { x, y, width, height } = e.getBoundingClientRect(); return { x, y, width, height } })()`, name),
		&box); err != nil {
		return err
	}
	if err := p.do(chromedp.MouseEvent(chromedp.MouseMoved, box.X+x*box.Width, box.Y+y*box.Height)); err != nil {
		return fmt.Errorf("moving to %s: %w", selector, err)
	}
	return p.Settle()
}

// keys maps the names of special keys to what is typed for them.
var keys = map[string]string{"Tab": kb.Tab, "Enter": kb.Enter, "Escape": kb.Escape, "Space": " ",
	"ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight, "ArrowUp": kb.ArrowUp, "ArrowDown": kb.ArrowDown,
	"Home": kb.Home, "End": kb.End}

// Press presses keys one after the other. A name is a key such as ArrowLeft, Enter or Tab, or a text to type.
func (p *Page) Press(names ...string) error {
	for _, name := range names {
		text, ok := keys[name]
		if !ok {
			text = name
		}
		if err := p.do(chromedp.KeyEvent(text)); err != nil {
			return fmt.Errorf("pressing %s: %w", name, err)
		}
	}
	return p.Settle()
}

// Held is the memory that a page uses.
type Held struct {
	HeapBytes int64 // bytes of the JavaScript heap
	Nodes     int64 // nodes of all documents
	Listeners int64
}

// Held runs the page's garbage collection and returns what remains.
func (p *Page) Held() (h Held, err error) {
	err = p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for range 2 { // the first collection may free the last references to more
			if _, err := cdp.Call(ctx, t, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
				return err
			}
		}
		heap, err := cdp.Call(ctx, t, runtime.GetHeapUsage, cdp.Empty{})
		if err != nil {
			return err
		}
		counted, err := cdp.Call(ctx, t, memory.GetDOMCounters, cdp.Empty{})
		h = Held{int64(heap.UsedSize), counted.Nodes, counted.JsEventListeners}
		return err
	}))
	return h, err
}

// Picture returns a PNG of the visible part of the page. If `whole` is true, it returns a PNG of the whole page.
func (p *Page) Picture(whole bool) ([]byte, error) {
	if whole {
		return ask(p, chromedp.FullScreenshot(100))
	}
	return ask(p, chromedp.CaptureScreenshot())
}

// PDF returns the page printed on A4, with colours.
func (p *Page) PDF() ([]byte, error) {
	return ask(p, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4), chromedp.PDFPrintBackground(),
		chromedp.PDFPreferCSSPageSize()))
}

// Violation is a rule of axe-core that the page breaks.
type Violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		Target         []any
		FailureSummary string
	}
}

// Audit runs axe-core, given its source, and returns the violations of serious and critical impact.
func (p *Page) Audit(axe string) ([]Violation, error) {
	if err := p.Eval(axe+"\n;0", nil); err != nil {
		return nil, err
	}
	var found struct{ Violations []Violation }
	if err := p.Eval(`axe.run(document, { resultTypes: ["violations"] })`, &found); err != nil {
		return nil, err
	}
	var grave []Violation
	for _, v := range found.Violations {
		if v.Impact == "serious" || v.Impact == "critical" {
			grave = append(grave, v)
		}
	}
	return grave, nil
}

// String describes the violation and lists elements of the page that have it.
func (v Violation) String() string {
	text := fmt.Sprintf("axe: %s (%s): %s", v.ID, v.Impact, v.Help)
	for i, n := range v.Nodes {
		if i == 5 {
			return text + fmt.Sprintf("\n  and %d more", len(v.Nodes)-i)
		}
		text += fmt.Sprintf("\n  %v %s\n    %s", n.Target, short(n.HTML), short(n.FailureSummary))
	}
	return text
}
