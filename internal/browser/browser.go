// Package browser opens pages in a headless Chromium and reports their faults.
//
// Input: an address (a file's path, or a URL), a size, and light or dark. Output: results of JavaScript in the page,
// pictures, a PDF, the findings of axe-core, and the page's faults: errors on its console, exceptions, and requests to
// other machines. Chromium cannot resolve the names of other hosts. The caller closes pages and the Browser; a Browser
// that is not closed ends with the process. Tests use this package, and so do the programs that make the pictures of
// the documentation. No program that is released contains it.
package browser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long any request to a page may take, on a machine that may also be training.
const patience = 60 * time.Second

// ErrMissing means that the machine has no Chromium.
var ErrMissing = errors.New("no chromium on this machine; scripts/browser.sh installs Debian's")

// Browser is a process of Chromium.
type Browser struct {
	ctx     context.Context
	close   func()
	program *exec.Cmd
}

// View is how a page is shown. Below a width of 600 pixels it is shown as on a phone: its viewport element applies.
type View struct {
	Width, Height int // in CSS pixels; a height of 0 means 900
	Dark          bool
	Scale         float64 // picture pixels per CSS pixel; 0 means 1
}

func (v View) String() string {
	shade := "light"
	if v.Dark {
		shade = "dark"
	}
	return fmt.Sprintf("%d %s", v.Width, shade)
}

// Start starts Chromium, or returns ErrMissing if there is none. When this process ends, Chromium ends too and its
// files are removed.
func Start() (*Browser, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, ErrMissing
	}
	dir, err := os.MkdirTemp("", "millrace-browser")
	if err != nil {
		return nil, err
	}
	b := &Browser{}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(dir),
		chromedp.NoSandbox, chromedp.Flag("disable-gpu", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1, EXCLUDE ::1"),
		// Chromium ends when its pipe to this process closes, but it still writes files for a moment, so the shell
		// removes its folder more than once. By default chromedp asks the system to signal Chromium at the death of the
		// thread that started it. That thread may end before the process.
		chromedp.ModifyCmdFunc(func(c *exec.Cmd) {
			c.Args = append([]string{"sh", "-c", `"$@"; for i in 1 2 3; do sleep 1; rm -rf "$0"; done`, dir, path},
				c.Args[1:]...)
			c.Path = "/bin/sh"
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // for Kill
			b.program = c
		}))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(ctx)
	b.ctx, b.close = ctx, func() { _ = chromedp.Cancel(ctx); stop(); end(); _ = os.RemoveAll(dir) }
	if err := chromedp.Do(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("chromium does not start: %w", err)
	}
	return b, nil
}

// Close ends the browser.
func (b *Browser) Close() { b.close() }

// Kill ends the browser and its child processes at once, without closing connections. Close removes its files.
func (b *Browser) Kill() error { return syscall.Kill(-b.program.Process.Pid, syscall.SIGKILL) }

// Page is an open page. Pages share no stored data.
type Page struct {
	ctx     context.Context
	close   func()
	address string

	lock   sync.Mutex
	faults []string
}

// Open opens the file or URL, and returns when it has been loaded and drawn.
func (b *Browser) Open(address string, v View) (*Page, error) {
	if !strings.Contains(address, "://") {
		whole, err := filepath.Abs(address)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(whole); err != nil {
			return nil, err
		}
		address = (&url.URL{Scheme: "file", Path: whole}).String()
	}
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &Page{ctx: ctx, close: end, address: address}
	err := chromedp.Listen(ctx, p.note)
	if err == nil {
		err = p.show(v, chromedp.Navigate(address))
	}
	if err != nil {
		end()
		return nil, err
	}
	return p, nil
}

// Again reloads the page in a view, and returns when it has been loaded and drawn. A reload takes less time than Open.
// The page keeps the faults that were recorded, and what it has stored.
func (p *Page) Again(v View) error { return p.show(v, chromedp.Reload()) }

// show sets a view and loads the page.
func (p *Page) show(v View, load chromedp.Action[chromedp.Void]) error {
	if v.Height == 0 {
		v.Height = 900
	}
	if v.Scale == 0 {
		v.Scale = 1
	}
	shade := "light"
	if v.Dark {
		shade = "dark"
	}
	err := p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: shade},
				{Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	}), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: int64(v.Width), Height: int64(v.Height), DeviceScaleFactor: v.Scale, Mobile: v.Width < 600})
		return err
	}), load)
	if err == nil {
		err = p.Settle()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.address, err)
	}
	return nil
}

// Close closes the page.
func (p *Page) Close() { p.close() }

// Faults returns the page's faults since it was opened, in order.
func (p *Page) Faults() []string {
	p.lock.Lock()
	defer p.lock.Unlock()
	return append([]string(nil), p.faults...)
}

// note records the events that are faults.
func (p *Page) note(event any) {
	var fault string
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeError && e.Type != runtime.ConsoleAPICalledTypeAssert {
			return
		}
		fault = "console:"
		for _, a := range e.Args {
			fault += " " + strings.Trim(string(a.Value), `"`) + a.Description
		}
	case *runtime.EventExceptionThrown:
		fault = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			fault += " " + e.ExceptionDetails.Exception.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level != log.EntryLevelError {
			return
		}
		fault = "log: " + e.Entry.Text + " " + e.Entry.URL
	case *network.EventRequestWillBeSent:
		if stays(e.Request.URL) {
			return
		}
		fault = "a request leaves this machine: " + e.Request.URL
	default:
		return
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.faults = append(p.faults, fault)
}

// stays reports whether a request for an address stays on this machine.
func stays(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "file", "data", "blob", "about":
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// do makes Chromium carry out actions in order.
func (p *Page) do(steps ...chromedp.Action[chromedp.Void]) error {
	_, err := ask(p, chromedp.Steps(steps...))
	return err
}

// ask makes Chromium carry out an action that has a result.
func ask[T any](p *Page, what chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, what)
}
