package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// shelfOf serves runs' folders.
func shelfOf(t *testing.T, paths ...string) (*Shelf, *httptest.Server) {
	t.Helper()
	s, err := New(paths)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		s.Close()
		server.Close()
	})
	return s, server
}

type listener struct {
	t     *testing.T
	lines *bufio.Scanner
	id    string // ID of the last event
	end   func()
}

// listen opens a stream for a page. `id` is the ID of the last event that the page has received; it says what the page
// already has.
func listen(t *testing.T, at, draw, show, id string) *listener {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/stream?"+url.Values{"draw": {draw},
		"show": {show}}.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		r.Header.Set("Last-Event-ID", id)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %v", answer.Status, answer.Header)
	}
	t.Cleanup(func() { end(); answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 16<<20)
	return &listener{t, lines, id, end}
}

func (l *listener) next() news {
	l.t.Helper()
	for l.lines.Scan() {
		if id, is := strings.CutPrefix(l.lines.Text(), "id: "); is {
			l.id = id
		}
		if data, is := strings.CutPrefix(l.lines.Text(), "data: "); is {
			var n news
			if err := json.Unmarshal([]byte(data), &n); err != nil {
				l.t.Fatal(err)
			}
			return n
		}
	}
	l.t.Fatalf("the stream ends: %v", l.lines.Err())
	return news{}
}

// until returns the first event for which the function `holds` returns true.
func (l *listener) until(holds func(news) bool) news {
	for {
		if n := l.next(); holds(n) {
			return n
		}
	}
}

type sentSeries struct {
	From int
	Step []int
}

func stepsOf(t *testing.T, n news) (s sentSeries) {
	t.Helper()
	if err := json.Unmarshal(n.Drawn[0].Steps, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func drew(n news) bool { return len(n.Drawn) > 0 && n.Drawn[0].Steps != nil }

// A page that lost its stream opens another one, which sends only what is new. If the files were replaced, everything
// is sent again. The same holds if the page's cursor is invalid or of another process.
func TestAStreamGoesOnWhereItWas(t *testing.T) {
	dir, _ := folderOf(t, map[string]string{"metrics.jsonl": stepLine(0, 1) + stepLine(1, 2), "job.yaml": "steps: 9"})
	path := filepath.Join(dir, "metrics.jsonl")
	_, server := shelfOf(t, dir)
	id := IDOf(dir)

	l := listen(t, server.URL, id, "", "")
	first := l.until(drew)
	if s := stepsOf(t, first); len(s.Step) != 2 || !first.All || len(first.Runs) != 1 || first.Runs[0].Step != 2 ||
		len(first.Details) != 1 || first.Details[0].Settings["steps"] != "9" || !first.Drawn[0].Fresh {
		t.Fatalf("first %+v", first)
	}
	add(t, path, stepLine(2, 3))
	n := l.until(drew)
	if s := stepsOf(t, n); s.From != 2 || fmt.Sprint(s.Step) != "[3]" || n.All || n.Drawn[0].Fresh || len(n.Details) != 0 {
		t.Errorf("another step: %+v", n)
	}
	l.end()

	add(t, path, stepLine(3, 4)+stepLine(4, 5))
	l = listen(t, server.URL, id, "", l.id)
	n = l.until(drew)
	if s := stepsOf(t, n); s.From != 3 || fmt.Sprint(s.Step) != "[4 5]" || n.All || n.Drawn[0].Fresh {
		t.Errorf("it goes on with %+v", n)
	}
	last := l.id
	write(t, path+".new", stepLine(0, 9))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	n = l.until(drew)
	if s := stepsOf(t, n); s.From != 0 || fmt.Sprint(s.Step) != "[1]" || !n.Drawn[0].Fresh {
		t.Errorf("written over: %+v", n)
	}
	l.end()

	_, cursor, _ := strings.Cut(last, ".")
	for _, id2 := range []string{"other." + cursor, "nonsense", last + ".7", strings.Replace(last, ".", ".-", 1)} {
		l = listen(t, server.URL, id, "", id2)
		if n := l.until(drew); !n.All || !n.Drawn[0].Fresh {
			t.Errorf("with cursor %q: %+v", id2, n)
		}
		l.end()
	}
}

// A page that reads nothing delays no other page, and is disconnected.
func TestAPageThatReadsNothingHoldsNobodyUp(t *testing.T) {
	var long strings.Builder
	for i := range 3000 {
		long.WriteString(stepLine(i, float64(i)))
	}
	dir, _ := folderOf(t, map[string]string{"metrics.jsonl": long.String()})
	s, err := New([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.patience = 2 * time.Second
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(1 << 12); err != nil {
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	defer server.Close()
	stuck, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if err := stuck.(*net.TCPConn).SetReadBuffer(1 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(stuck, "GET /stream?draw=%s HTTP/1.1\r\nHost: x\r\n\r\n", IDOf(dir))
	l := listen(t, server.URL, IDOf(dir), "", "")
	l.until(drew)
	for i := range 5 {
		add(t, filepath.Join(dir, "metrics.jsonl"), stepLine(3000+i, float64(3000+i)))
		l.until(func(n news) bool { return len(n.Runs) > 0 && n.Runs[0].Step == 3001+i })
	}
	l.end()
	for began := time.Now(); s.Watched(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("a page that takes nothing is still sent what is new")
		}
	}
}

// Nothing is read while no page is open.
func TestNobodyLooksNothingIsRead(t *testing.T) {
	dir, _ := folderOf(t, map[string]string{"metrics.jsonl": stepLine(0, 1)})
	s, server := shelfOf(t, dir)
	time.Sleep(2 * pollDrawn)
	s.mu.Lock()
	rounds, step := s.rounds, s.byID[IDOf(dir)].follower.now.Step
	s.mu.Unlock()
	if rounds != 0 || step != 0 {
		t.Errorf("%d rounds, step %d", rounds, step)
	}
	l := listen(t, server.URL, "", "", "")
	if n := l.next(); len(n.Runs) != 1 || n.Runs[0].Step != 1 {
		t.Errorf("%+v", n)
	}
}

// New runs are found in a folder of runs, and in its subfolders. Runs that were set aside are not found, and neither
// are runs behind links.
func TestNewRunsTurnUp(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	put := func(path string) {
		t.Helper()
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(path, "metrics.jsonl"), stepLine(0, 1))
	}
	put(filepath.Join(root, "a"))
	put(filepath.Join(root, "a", "aside-1"))
	put(filepath.Join(root, "more", "b"))
	put(filepath.Join(other, "secret"))
	if err := os.Symlink(filepath.Join(other, "secret"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	_, server := shelfOf(t, root)
	l := listen(t, server.URL, "", "", "")
	n := l.next()
	var found []string
	for _, r := range n.Runs {
		name, _ := filepath.Rel(root, r.Name)
		found = append(found, name)
	}
	if fmt.Sprint(found) != "[a more/b]" {
		t.Errorf("found %v", found)
	}
	put(filepath.Join(root, "c"))
	n = l.until(func(n news) bool { return len(n.Runs) > 0 })
	if len(n.Runs) != 1 || filepath.Base(n.Runs[0].Name) != "c" || n.All {
		t.Errorf("then %+v", n.Runs)
	}
}

// Only the program's own files and the stream are served, with a policy that forbids anything else.
func TestNothingElseIsServed(t *testing.T) {
	dir, _ := folderOf(t, map[string]string{"metrics.jsonl": stepLine(0, 1), "report.html": "secret"})
	_, server := shelfOf(t, dir)
	for path, want := range map[string]int{
		"/": 200, "/live.js": 200, "/live.css": 200, "/style.css": 200, "/theme.js": 200, "/paint.js": 200, "/main.js": 404,
		"/web/live.js": 404, "/report.html": 404, "/metrics.jsonl": 404, "/" + IDOf(dir): 404, "/%2e%2e/go.mod": 404,
		"/stream?draw=" + strings.Repeat("a,", 40): 400, "/../../etc/passwd": 404, "/report.html?run=../../secret": 404,
	} {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
		}
		h := answer.Header
		p := h.Get("Content-Security-Policy")
		if !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if answer, err := http.Post(server.URL+"/", "text/plain", strings.NewReader("x")); err != nil ||
		answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %v, %v", answer, err)
	}
}

func TestPathsThatAreNotThereAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "x")
	for path, says := range map[string]string{filepath.Join(t.TempDir(), "none"): "no such file", file: "is a file"} {
		if _, err := New([]string{path}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A run disappears from the pages when its folder is gone. If a folder of runs is gone, all its runs disappear. A run
// whose own folder was given stays in the list as waiting, and continues when the folder is back.
func TestRunsVanish(t *testing.T) {
	root, named := t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(root, "a"), filepath.Join(root, "b"), named} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "metrics.jsonl"), stepLine(0, 1))
	}
	_, server := shelfOf(t, root, named)
	l := listen(t, server.URL, IDOf(filepath.Join(root, "a")), "", "")
	if n := l.until(drew); len(n.Runs) != 3 {
		t.Fatalf("%+v", n.Runs)
	}
	if err := os.RemoveAll(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	n := l.until(func(n news) bool { return n.All })
	if len(n.Runs) != 2 || filepath.Base(n.Runs[0].Name) == "a" || filepath.Base(n.Runs[1].Name) == "a" {
		t.Errorf("a is gone, and there are %+v", n.Runs)
	}
	if err := errors.Join(os.RemoveAll(root), os.RemoveAll(named)); err != nil {
		t.Fatal(err)
	}
	n = l.until(func(n news) bool { return n.All && len(n.Runs) == 1 })
	if n.Runs[0].Name != named {
		t.Errorf("the folders are gone, and there are %+v", n.Runs)
	}
	if n.Runs[0].State != waits {
		l.until(func(n news) bool { return len(n.Runs) == 1 && n.Runs[0].State == waits })
	}
	if err := os.Mkdir(named, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(named, "metrics.jsonl"), stepLine(0, 1)+stepLine(1, 2))
	l.until(func(n news) bool { return len(n.Runs) == 1 && n.Runs[0].Step == 2 })
}

// Many pages that read nothing use much less memory than their events would take, and delay no other page.
func TestManyPagesThatReadNothing(t *testing.T) {
	var long strings.Builder
	for i := range 3000 {
		long.WriteString(stepLine(i, float64(i)))
	}
	dir, _ := folderOf(t, map[string]string{"metrics.jsonl": long.String()})
	s, server := shelfOf(t, dir)
	const many = 300
	for range many {
		stuck, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer stuck.Close()
		if err := stuck.(*net.TCPConn).SetReadBuffer(1 << 10); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(stuck, "GET /stream?draw=%s HTTP/1.1\r\nHost: x\r\n\r\n", IDOf(dir))
	}
	for began := time.Now(); s.looking.Load() < many; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("%d of %d are answered", s.looking.Load(), many)
		}
	}
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	l := listen(t, server.URL, IDOf(dir), "", "")
	l.until(drew)
	before := held()
	for i := range 10 {
		add(t, filepath.Join(dir, "metrics.jsonl"), stepLine(3000+i, float64(3000+i)))
		l.until(func(n news) bool { return len(n.Runs) > 0 && n.Runs[0].Step == 3001+i })
	}
	// The first event of this run is 300 KB. Three copies of it for each of the 300 pages would be 270 MB.
	if after := held(); after > before+100<<20 {
		t.Errorf("they hold %d MB, and before %d", after>>20, before>>20)
	}
}
