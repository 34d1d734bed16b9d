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

// Shelf has runs, and reads their folders while somebody looks.
type Shelf struct {
	roots []string

	mu       sync.Mutex
	runs     []*run
	byID     map[string]*run
	rounds   int
	removed  int           // the round in which a run was last removed
	full     bool          // there are more runs than mostRuns
	looking  atomic.Int32  // streams that are open
	wake     chan struct{} // closed at the next change
	awake    chan struct{} // has one where somebody has begun to look
	closed   chan struct{}
	searched time.Time
	patience time.Duration // with a page that does not take what it is sent
}

// run is one of them.
type run struct {
	id, name, dir string
	follower      *Follower
	wanted        int // streams that draw its steps
	drawn         int // streams that show it alone
	seen          time.Time
	round         int // of the Shelf, in which something new was known of it last; 0: nothing is known yet
	told          summary
	named         bool // by whoever made the Shelf: it stays, whether its folder is there or not
}

// How often files are looked at: those of runs that somebody draws, of others, and for new runs.
const (
	pollDrawn  = 400 * time.Millisecond
	pollOthers = 3 * time.Second
	pollFound  = 3 * time.Second
)

// mostRuns bounds what is found in folders: the runs that began to be written last.
const mostRuns = 500

// New has runs' folders, and folders that have some. Those that are not there are refused, but for one that is to be.
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

// put adds a run, unless it is there.
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

// IDOf identifies a folder's run in links: by its name, and a suffix that tells it from others of that name.
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

// search looks for new runs in folders of runs, and in the folders in these. Those that were found there and are gone
// are forgotten.
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

// below is the folders in a folder, by name; links to others count for none.
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

// Watched says whether somebody looks. It waits for nobody.
func (s *Shelf) Watched() bool { return s.looking.Load() > 0 }

// Runs is how many runs are shown by now.
func (s *Shelf) Runs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// Close ends all streams.
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

// read reads the folders while somebody looks.
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

// poll looks at the runs whose turn it is, and wakes the streams where there is anything new.
func (s *Shelf) poll(now time.Time) {
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
		if len(s.runs) > 1 { // those who ask for nothing but to begin are not kept waiting by a long file
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

// ordered is the runs by name.
func ordered(runs []*run) []*run {
	return slices.SortedFunc(slices.Values(runs), func(a, b *run) int { return cmp.Compare(a.name, b.name) })
}
