package live

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// Shelf holds runs, and reads their folders while a page is open.
type Shelf struct {
	roots []string

	polling  sync.Mutex // held while folders are read; locked before mu
	mu       sync.Mutex
	runs     []*run
	byID     map[string]*run
	rounds   int
	removed  int           // the round in which a run was last removed
	full     bool          // there are more runs than mostRuns
	looking  atomic.Int32  // number of open streams
	wake     chan struct{} // closed at the next change
	awake    chan struct{} // gets a value when a page opens
	closed   chan struct{}
	searched time.Time
	patience time.Duration // how long a page may take to read what it is sent
}

type run struct {
	id, name, dir string
	follower      *Follower
	wanted        int // number of streams that show the run's curves
	drawn         int // streams that show only this run
	seen          time.Time
	round         int // round of the Shelf in which the run last changed; 0: nothing is known yet
	told          summary
	named         bool // the caller has given the run: it stays even if its folder is missing
}

// pollDrawn is the interval at which files of runs on a page are read. pollOthers is the interval for the files of
// other runs. pollFound is the interval at which new runs are searched for.
const (
	pollDrawn  = 400 * time.Millisecond
	pollOthers = 3 * time.Second
	pollFound  = 3 * time.Second
)

// mostRuns is the maximal number of runs of a Shelf.
const mostRuns = 500

// New returns a Shelf for folders of runs, and for folders that contain such folders. It refuses a path that is missing
// or a file. The folders in `toBe` are folders of runs that may be missing.
func New(paths []string, toBe ...string) (*Shelf, error) {
	s := &Shelf{byID: map[string]*run{}, wake: make(chan struct{}), awake: make(chan struct{}, 1),
		closed: make(chan struct{}), patience: takesWithin}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("live: %w; give the folder of a run, or one that has such folders", err)
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("live: %s is a file; give the folder of a run, or one that has such folders", path)
		}
		if IsRun(path) {
			s.put(path, true)
		} else {
			s.roots = append(s.roots, path)
		}
	}
	for _, path := range toBe {
		s.put(path, true)
	}
	s.search()
	crash.Go(s.read)
	return s, nil
}

// put adds a run, unless it is there already or there are mostRuns.
func (s *Shelf) put(dir string, named bool) {
	id := IDOf(dir)
	if s.byID[id] != nil {
		return
	}
	if s.full = len(s.runs) >= mostRuns; s.full {
		return
	}
	r := &run{id: id, name: filepath.Clean(dir), dir: dir, follower: NewFollower(dir), named: named}
	s.byID[id] = r
	s.runs = append(s.runs, r)
}

// IDOf identifies a folder's run in links: by the folder's name, and a suffix that differs for folders of the same
// name.
func IDOf(dir string) string {
	whole, err := filepath.Abs(dir)
	if err != nil {
		whole = dir
	}
	sum := sha256.Sum256([]byte(whole))
	name := strings.Map(func(r rune) rune {
		if r < 128 && (r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, filepath.Base(whole))
	return name[:min(len(name), 40)] + "-" + hex.EncodeToString(sum[:4])
}

// search finds new runs in the given folders, in their subfolders and in the subfolders of these. It removes runs that
// it found earlier and whose folders are no longer folders of runs. If it finds more than mostRuns, it prefers the
// folders that changed last.
func (s *Shelf) search() {
	s.searched = time.Now()
	s.full = false
	s.runs = slices.DeleteFunc(s.runs, func(r *run) bool {
		if r.named || IsRun(r.dir) {
			return false
		}
		delete(s.byID, r.id)
		s.removed = s.rounds + 1
		return true
	})
	var found []string
	for _, root := range s.roots {
		for _, dir := range append([]string{root}, below(root)...) {
			if IsRun(dir) {
				found = append(found, dir)
				continue
			}
			for _, inner := range below(dir) {
				if IsRun(inner) {
					found = append(found, inner)
				}
			}
		}
	}
	if len(found) > mostRuns {
		written := map[string]time.Time{}
		for _, dir := range found {
			if info, err := os.Stat(dir); err == nil {
				written[dir] = info.ModTime()
			}
		}
		slices.SortStableFunc(found, func(a, b string) int { return written[b].Compare(written[a]) })
	}
	for _, dir := range found {
		s.put(dir, false)
	}
}

// below returns the subfolders of a folder, by name, without links. It leaves out hidden folders, and the folders of
// runs that were set aside.
func below(dir string) (all []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(e.Name(), "aside-") {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all
}

// Watched reports whether a page is open. It does not block.
func (s *Shelf) Watched() bool { return s.looking.Load() > 0 }

// Runs returns the number of runs.
func (s *Shelf) Runs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// Close ends all streams, and stops the goroutine that reads folders.
func (s *Shelf) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

// read reads the folders while a page is open.
func (s *Shelf) read() {
	tick := time.NewTicker(pollDrawn)
	defer tick.Stop()
	for {
		if s.Watched() {
			s.poll(time.Now())
		} else {
			select {
			case <-s.awake:
				continue
			case <-s.closed:
				return
			}
		}
		select {
		case <-tick.C:
		case <-s.awake:
		case <-s.closed:
			return
		}
	}
}

// lookAnew searches the folders for runs, so that a page that opens is first sent all runs that are there now.
func (s *Shelf) lookAnew() {
	s.mu.Lock()
	s.searched = time.Time{}
	s.mu.Unlock()
	s.poll(time.Now())
}

// poll reads the runs that are due, and wakes the streams if anything is new.
func (s *Shelf) poll(now time.Time) {
	s.polling.Lock()
	defer s.polling.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	round, changed := s.rounds+1, false
	if len(s.roots) > 0 && now.Sub(s.searched) >= pollFound {
		n, full := len(s.runs), s.full
		s.search()
		changed = len(s.runs) > n || s.removed == round || s.full != full
	}
	for _, r := range slices.Clone(s.runs) {
		if r.wanted+r.drawn == 0 && now.Sub(r.seen) < pollOthers {
			continue
		}
		r.seen = now
		if r.follower.look(r.drawn > 0) || r.round == 0 || r.follower.state(now) != r.told.State {
			r.told = r.follower.summary(r.id, r.name, now)
			r.round, changed = round, true
		}
		if len(s.runs) > 1 { // this releases the lock, so that a long file does not delay new pages
			s.mu.Unlock()
			s.mu.Lock()
		}
	}
	if changed {
		s.rounds = round
		close(s.wake)
		s.wake = make(chan struct{})
	}
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// ordered returns the runs by name.
func ordered(runs []*run) []*run {
	return slices.SortedFunc(slices.Values(runs), func(a, b *run) int { return cmp.Compare(a.name, b.name) })
}
