package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// attackVar is an environment variable. It names the file to which an attack that found no fault writes its
// measurements.
const attackVar = "MILLRACE_ATTACK"

// attack is an attacker without a token, at one address.
type attack struct {
	at       string
	rank     int // rank of the process at the address
	http     bool
	recorded []byte      // what a permitted connection sent
	turned   chan string // for each connection: "" if it is refused, else what is wrong
}

// says sends data to the address and reports what happens to the connection.
func (a attack) says(what string, text []byte) {
	raw, err := net.Dial("tcp", a.at)
	if err != nil {
		a.turned <- what + " is let in nowhere"
		return
	}
	defer raw.Close()
	_, _ = raw.Write(text) // the other end may stop reading
	_ = raw.SetReadDeadline(time.Now().Add(20 * time.Second))
	heard, err := io.ReadAll(io.LimitReader(raw, 1<<20))
	var late net.Error
	switch ok := a.http && bytes.HasPrefix(heard, []byte("HTTP/1.1 200")); {
	case errors.As(err, &late) && late.Timeout():
		a.turned <- what + " may stay"
	case ok || len(heard) > 4096:
		a.turned <- fmt.Sprintf("%s is told %d bytes: %.100q", what, len(heard), heard)
	default:
		a.turned <- ""
	}
}

// drips sends the text slowly, byte by byte, until the connection is closed.
func (a attack) drips(text []byte) {
	raw, err := net.Dial("tcp", a.at)
	if err != nil {
		a.turned <- "a slow one is let in nowhere"
		return
	}
	defer raw.Close()
	for since, i := time.Now(), 0; time.Since(since) < 20*time.Second; i++ {
		if _, err := raw.Write(text[i%len(text) : i%len(text)+1]); err != nil {
			a.turned <- ""
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	a.turned <- "a slow one may stay"
}

// siege says how strong the attack is, and how long it lasts.
type siege struct {
	many   int           // attackers of each kind at an address
	window time.Duration // duration of repeated attempts; 0: one attempt each
	pause  time.Duration // time between two attempts
	before time.Duration // duration of the measurement without an attack
}

// on runs all attackers at an address, and returns what went wrong, and how many were refused.
func (s siege) on(a attack) (wrong []string, refused int) {
	garbage := make([]byte, 1<<16)
	_, _ = rand.Read(garbage)
	hello := slices.Concat([]byte("MWTC\x01\x00\x02\x00"), garbage[:80])
	clear(hello[8:24])
	huge := []byte("GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<16) + "\r\n\r\n")
	words := map[string][]byte{
		"garbage": garbage, "a browser": []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "a long header": huge,
		"half a hello": hello[:50], "a wrong proof": slices.Concat(hello, garbage[:32]), "a replay": a.recorded,
		"sizes beyond all": bytes.Repeat([]byte{0xff}, 4096), "nothing": nil,
		"a wrong bearer": []byte("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strangersToken + "!\r\n\r\n"),
	}
	var all sync.WaitGroup
	over := time.Now().Add(s.window)
	again := func(once func()) {
		all.Go(func() {
			for once(); time.Now().Add(s.pause).Before(over); once() {
				time.Sleep(s.pause)
			}
		})
	}
	for range s.many {
		for what, text := range words {
			again(func() { a.says(what, text) })
		}
		again(func() { a.drips(hello) })
	}
	go func() {
		all.Wait()
		close(a.turned)
	}()
	for said := range a.turned {
		if said == "" {
			refused++
		} else if !slices.Contains(wrong, said) {
			wrong = append(wrong, said)
		}
	}
	return wrong, refused
}

// atOnce returns how many connections a siege has at one address.
func (s siege) atOnce() int { return 10 * s.many }

// rightful opens a new connection for each request, as a permitted client that arrives during the attack.
var rightful = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// stepsOf returns how many steps a run has done, according to its metrics.
func stepsOf(metrics string) (steps float64, err error) {
	r, err := http.NewRequest(http.MethodGet, "http://"+metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+strangersToken)
	answer, err := rightful.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics for whoever knows the token: %s, %w", answer.Status, err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, `millrace_steps_total{model="mlp"} %g`, &steps); err == nil {
			return steps, nil
		}
	}
	return 0, fmt.Errorf("no steps in %s", text)
}

// resident returns a process's memory in bytes.
func resident(pid int) (n int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		return 0, fmt.Errorf("no VmRSS: %w", err)
	}
	return n << 10, nil
}

// watched is what was observed of a run.
type watched struct {
	rate, pause     float64       // steps per second, and the longest time in which no step ended, in seconds
	most            map[int]int64 // peak memory in bytes, by rank
	asked, answered int           // number of permitted requests for metrics, and how many of them were answered
}

// watch reads a run's metrics until `over` is closed and a request for metrics is answered again.
func watch(metrics string, ranks map[int]int, over <-chan struct{}) (w watched, err error) {
	w.most = map[int]int64{}
	var first, last float64
	began, since := time.Now(), time.Now()
	for ended := (time.Time{}); ; {
		select {
		case <-over:
			if ended.IsZero() {
				ended = time.Now()
			}
		default:
		}
		time.Sleep(50 * time.Millisecond)
		for rank, pid := range ranks {
			n, err := resident(pid)
			if err != nil {
				return w, err
			}
			w.most[rank] = max(w.most[rank], n)
		}
		w.asked++
		steps, err := stepsOf(metrics)
		if err != nil {
			if !ended.IsZero() && time.Since(ended) > 20*time.Second {
				return w, err
			}
			continue
		}
		if w.answered++; w.answered == 1 {
			first, last, began = steps, steps, time.Now()
		}
		w.pause = max(w.pause, time.Since(since).Seconds())
		if steps > last {
			last, since = steps, time.Now()
		}
		if !ended.IsZero() {
			w.rate = (last - first) / time.Since(began).Seconds()
			return w, nil
		}
	}
}

// besieged is the recorded result of an attack.
type besieged struct {
	Version   int     `json:"version"`
	Processes int     `json:"processes"`
	Addresses int     `json:"addresses"`
	AtOnce    int     `json:"at_once"` // attackers' connections at each address
	Refused   int     `json:"refused"` // refused connections at all addresses
	Seconds   float64 `json:"seconds"`
	Before    float64 `json:"steps_per_second_before"`
	During    float64 `json:"steps_per_second_during"`
	Asked     int     `json:"metrics_asked"` // permitted requests during the attack
	Answered  int     `json:"metrics_answered"`
	// The pauses are the longest times in which no step ended.
	PauseBefore float64 `json:"longest_pause_before_s"`
	PauseDuring float64 `json:"longest_pause_during_s"`
	// The memory of each process, by rank: its peaks before and during the attack.
	ResidentBefore []int64 `json:"resident_bytes_before"`
	ResidentDuring []int64 `json:"resident_bytes_during"`
}

// ownNoise is the normal variation of a process's memory, in bytes. ofConnection is how many bytes each connection may
// add. mostUnfinished is how many unfinished connections a process keeps; with more, it closes the oldest one.
const (
	ownNoise       = 24 << 20
	ofConnection   = 64 << 10
	mostUnfinished = 512
)

// under checks that a run continues under attack at all addresses, with bounded memory, and refuses all attackers.
func (s siege) under(t *testing.T, metrics string, ranks map[int]int, attacks []attack) besieged {
	t.Helper()
	peace := make(chan struct{})
	time.AfterFunc(s.before, func() { close(peace) })
	before, err := watch(metrics, ranks, peace)
	if err != nil {
		t.Fatal(err)
	}
	began, over := time.Now(), make(chan struct{})
	refused, at := 0, map[int]int{}
	var mu sync.Mutex
	var attacking sync.WaitGroup
	for _, a := range attacks {
		at[a.rank] += min(s.atOnce(), mostUnfinished)
		attacking.Go(func() {
			wrong, n := s.on(a)
			mu.Lock()
			defer mu.Unlock()
			refused += n
			if len(wrong) > 0 {
				t.Errorf("rank %d at %s: %v", a.rank, a.at, wrong)
			}
		})
	}
	go func() {
		attacking.Wait()
		close(over)
	}()
	during, err := watch(metrics, ranks, over)
	<-over
	if err != nil {
		t.Fatal(err)
	}
	r := besieged{Version: 1, Processes: len(ranks), Addresses: len(attacks), AtOnce: s.atOnce(), Refused: refused,
		Seconds: time.Since(began).Seconds(), Before: before.rate, During: during.rate,
		Asked: during.asked, Answered: during.answered, PauseBefore: before.pause,
		PauseDuring: during.pause}
	for rank := range len(ranks) {
		r.ResidentBefore = append(r.ResidentBefore, before.most[rank])
		r.ResidentDuring = append(r.ResidentDuring, during.most[rank])
		if grown := during.most[rank] - before.most[rank]; grown > ownNoise+int64(at[rank])*ofConnection {
			t.Errorf("rank %d has %d bytes more than before, for %d connections at once", rank, grown, at[rank])
		}
	}
	t.Logf("%+v", r)
	if r.During < r.Before/10 {
		t.Errorf("%.1f steps a second under attack; %.1f before", r.During, r.Before)
	}
	return r
}
