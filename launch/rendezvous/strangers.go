package rendezvous

import (
	"net"
	"slices"
	"sync"
)

// maxStrangers is how many connections without a Hello there may be at once, in addition to one for each process.
const maxStrangers = 64

// maxTold is how many refused strangers are logged individually.
const maxTold = 32

// strangers holds the connections that have not sent a Hello, the oldest first.
type strangers struct {
	mu      sync.Mutex
	most    int
	waiting []net.Conn
	refused int
	closed  bool
}

// add adds a connection. If there are too many, the oldest is closed.
func (s *strangers) add(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return
	}
	if s.waiting = append(s.waiting, c); len(s.waiting) > s.most {
		_ = s.waiting[0].Close()
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.refused++
	}
}

// remove removes a connection, and says whether it was still there.
func (s *strangers) remove(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, c)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i >= 0
}

// closeAll closes the connections that have not sent a Hello, and those that are added later.
func (s *strangers) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.waiting {
		_ = c.Close()
	}
	s.waiting = nil
}

// refuse counts a stranger that was refused, and logs the first maxTold of them.
func (h *leader) refuse(c net.Conn, err error) {
	h.strangers.mu.Lock()
	h.strangers.refused++
	n := h.strangers.refused
	h.strangers.mu.Unlock()
	if n <= maxTold {
		h.Log.Warn("a stranger was refused", "from", c.RemoteAddr().String(), "error", err)
	}
}

// log logs the number of refused strangers, if there were more than are logged individually.
func (h *leader) log() {
	h.strangers.mu.Lock()
	defer h.strangers.mu.Unlock()
	if n := h.strangers.refused; n > maxTold {
		h.Log.Warn("more strangers were refused", "in_all", n)
	}
}
