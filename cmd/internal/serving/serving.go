// Package serving serves a run's metrics and pages over HTTP.
//
// In: an address as a flag names it, a token file or none, and a Handler. Out: a Server that answers only permitted
// requests. An address without a host is reachable only from this machine. An address that other machines reach needs a
// token. A client sends the token in the header Authorization. A browser that asks for a page without the token gets a
// form to enter it. Without a token, the Host of a request must name this machine; this defends against DNS rebinding
// by pages of other sites. Refused: invalid addresses, addresses for other machines without a token, and tokens that
// can be guessed. The caller must close the Server. A Handler that writes for longer than ten seconds must extend the
// deadline of its connection (http.ResponseController).
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

// Server answers permitted requests.
type Server struct {
	what     string // the service, for log lines
	listener net.Listener
	server   *http.Server
	want     *[sha256.Size]byte // digest of the header that requests must bear; nil: none

	mu      sync.Mutex
	conns   []net.Conn // the oldest first
	said    time.Time  // when a refusal was last logged
	refused int        // number of refusals since the last logged one
}

// mostConns is the maximal number of connections. If there are more, the oldest is closed.
const mostConns = 64

// leastToken is the minimal length of a token; shorter ones could be guessed. mostToken is the maximal size of a
// token's file. Both are in bytes.
const (
	leastToken = 16
	mostToken  = 4096
)

// Listen listens at the address that a flag names. `what` is the name of the service.
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

// isHere reports whether a host name means the local machine on every machine, like localhost.
func isHere(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// readToken reads the token that requests must bear.
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

// URL returns the server's address for a browser on this machine.
func (s *Server) URL() string {
	at := s.listener.Addr().(*net.TCPAddr)
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = cli.HostName()
	}
	return "http://" + net.JoinHostPort(host, fmt.Sprint(at.Port)) + "/"
}

// Serve answers requests until the server is closed. If it ends for another reason, it calls `failed`.
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

// count keeps the list of open connections.
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

// refuse logs a refused request, at most once a second.
func (s *Server) refuse(from, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused++; time.Since(s.said) < time.Second {
		return
	}
	slog.Warn("a request for "+s.what+" is refused", "from", from, "why", why, "others_not_logged", s.refused-1)
	s.said, s.refused = time.Now(), 0
}

// lastWords is how long unfinished answers may take when the server closes.
const lastWords = 300 * time.Millisecond

// Close closes the server, or just its address if Serve was not called. Unfinished answers may take lastWords.
func (s *Server) Close() error {
	if s.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		_ = s.server.Shutdown(ctx) // Close ends what is not done in this time
		return s.server.Close()
	}
	return s.listener.Close()
}
