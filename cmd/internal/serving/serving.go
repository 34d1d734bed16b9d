// Package serving answers HTTP requests for what a run says of itself: its metrics, and its pages.
//
// In: an address, as a flag names it, a file with a token or none, and a Handler. Out: a Server that lets through who
// may ask. An address without a host is this machine alone. One that others reach needs a token: who asks bears it in
// the header Authorization, or is a browser that was given it in the form that refused requests for pages are answered
// with. Without a token, requests must name this machine as their host, so that no page of another site that has its
// name point here (DNS rebinding) reads anything. Refused: addresses that are none, others' without a token, tokens
// that can be guessed. Whoever makes a Server closes it. A Handler that writes for longer than ten seconds moves the
// deadline of its connection on (http.ResponseController).
package serving

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/document"
)

// Server answers those who ask.
type Server struct {
	what     string // it is asked for
	listener net.Listener
	server   *http.Server
	want     *[sha256.Size]byte // of the header that requests must bear; nil: none

	mu      sync.Mutex
	conns   []net.Conn // the oldest first
	said    time.Time  // when a refusal was logged last
	refused int        // since then
}

// mostConns is the most connections at a time; of more, the oldest ends.
const mostConns = 64

// The shortest token, which nobody guesses, and how many bytes of a token's file are read.
const (
	leastToken = 16
	mostToken  = 4096
)

// Listen listens at the address that a flag names; what says for which service.
func Listen(what, flag, address, tokenFile string) (*Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if !strings.Contains(address, ":") {
			err = errors.New("it has no host and port with a : between")
		}
		return nil, cli.BadInput(fmt.Errorf("%s %s: %w; give an address like localhost:9090, or :9090", flag, address, err))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	s := &Server{what: what}
	if tokenFile != "" {
		token, err := readToken(tokenFile)
		if err != nil {
			return nil, cli.BadInput(err)
		}
		want := sha256.Sum256(append([]byte("Bearer "), token...))
		s.want = &want
	} else if !isHere(host) {
		return nil, cli.BadInput(fmt.Errorf("%s %s: others can reach that address; give a --token-file that "+
			"they must know, or an address of this machine alone, like :%s", flag, address, port))
	}
	if s.listener, err = net.Listen("tcp", net.JoinHostPort(host, port)); err != nil {
		return nil, cli.BadInput(fmt.Errorf("%s %s: %w; give an address like localhost:9090", flag, address, err))
	}
	return s, nil
}

// isHere says whether a host is reached from this machine alone.
func isHere(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// readToken reads what requests must bear.
func readToken(path string) ([]byte, error) {
	text, err := document.Read(path, mostToken)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	token := bytes.TrimSpace(text)
	if len(token) < leastToken || bytes.ContainsAny(token, " \t\r\n") {
		return nil, fmt.Errorf("--token-file %s: it must be one word of %d characters at least", path, leastToken)
	}
	return token, nil
}

// URL is where the server is, as a browser on this machine is to be told.
func (s *Server) URL() string {
	at := s.listener.Addr().(*net.TCPAddr)
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = cli.HostName()
	}
	return "http://" + net.JoinHostPort(host, fmt.Sprint(at.Port)) + "/"
}

// Serve answers requests until the server is closed. An end for another reason is told.
func (s *Server) Serve(h http.Handler, failed func(error)) {
	s.server = &http.Server{Handler: s.guarded(h), ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 14, ConnState: s.count, ErrorLog: slog.NewLogLogger(
			slog.Default().Handler(), slog.LevelWarn)}
	crash.Go(func() {
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	})
}

// count notes connections that begin and end.
func (s *Server) count(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns = append(s.conns, c)
		if len(s.conns) > mostConns {
			s.conns[0].Close()
			s.conns = slices.Delete(s.conns, 0, 1)
		}
	case http.StateClosed:
		if i := slices.Index(s.conns, c); i >= 0 {
			s.conns = slices.Delete(s.conns, i, i+1)
		}
	}
}

// refuse logs who may not ask, once a second at most.
func (s *Server) refuse(from, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused++; time.Since(s.said) < time.Second {
		return
	}
	slog.Warn("a request for "+s.what+" is refused", "from", from, "why", why, "others_not_logged", s.refused-1)
	s.said, s.refused = time.Now(), 0
}

// lastWords is how long answers under way may take when the server ends.
const lastWords = 300 * time.Millisecond

// Close ends the server, or gives back the address where none was begun. Answers under way have a moment to end.
func (s *Server) Close() error {
	if s.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		_ = s.server.Shutdown(ctx) // what has not ended by then is ended
		return s.server.Close()
	}
	return s.listener.Close()
}
