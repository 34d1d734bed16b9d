package training

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
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
	"github.com/millrace-ml/millrace/job"
)

// metricsServer answers those who ask for a run's metrics.
type metricsServer struct {
	listener net.Listener
	server   *http.Server
	token    []byte // that requests must bear; nil: none

	mu      sync.Mutex
	conns   []net.Conn // the oldest first
	said    time.Time  // when a refusal was logged last
	refused int        // since then
}

// mostConns is the most connections at a time; of more, the oldest ends.
const mostConns = 64

// Lengths of a token: what nobody guesses, and what is read of a file.
const (
	leastToken = 16
	mostToken  = 4096
)

// listenForMetrics takes the address that a job wants its metrics asked for at; nil where it names none. An
// address without a host is this machine alone; one that others reach needs a token.
func listenForMetrics(j *job.Job) (*metricsServer, error) {
	if j.Metrics == "" {
		if j.TokenFile != "" {
			return nil, cli.BadInput(fmt.Errorf("--token-file %s: it is for --metrics, which is not given",
				j.TokenFile))
		}
		return nil, nil
	}
	host, port, err := net.SplitHostPort(j.Metrics)
	if err != nil {
		return nil, cli.BadInput(fmt.Errorf("--metrics %s: %w; give an address like localhost:9090", j.Metrics, err))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	m := &metricsServer{}
	if j.TokenFile != "" {
		if m.token, err = readToken(j.TokenFile); err != nil {
			return nil, cli.BadInput(err)
		}
	} else if !isHere(host) {
		return nil, cli.BadInput(fmt.Errorf("--metrics %s: others can reach that address; give a --token-file that "+
			"they must know, or an address of this machine alone, like :%s", j.Metrics, port))
	}
	if m.listener, err = net.Listen("tcp", net.JoinHostPort(host, port)); err != nil {
		return nil, cli.BadInput(fmt.Errorf("--metrics %s: %w; give an address like localhost:9090", j.Metrics, err))
	}
	return m, nil
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

// serve answers requests for /metrics until the server is closed.
func (m *metricsServer) serve(metrics http.Handler, failed func(error)) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", m.guarded(metrics))
	m.server = &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 14, ConnState: m.count, ErrorLog: slog.NewLogLogger(
			slog.Default().Handler(), slog.LevelWarn)}
	crash.Go(func() {
		if err := m.server.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	})
}

// guarded lets only those requests through that bear the token. How long that takes says nothing of the
// token.
func (m *metricsServer) guarded(h http.Handler) http.Handler {
	if m.token == nil {
		return h
	}
	want := sha256.Sum256(append([]byte("Bearer "), m.token...))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			m.refuse(r.RemoteAddr)
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Connection", "close")
			http.Error(w, "this needs the token of --token-file: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// count notes connections that begin and end.
func (m *metricsServer) count(c net.Conn, state http.ConnState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch state {
	case http.StateNew:
		m.conns = append(m.conns, c)
		if len(m.conns) > mostConns {
			m.conns[0].Close()
			m.conns = slices.Delete(m.conns, 0, 1)
		}
	case http.StateClosed:
		if i := slices.Index(m.conns, c); i >= 0 {
			m.conns = slices.Delete(m.conns, i, i+1)
		}
	}
}

// refuse logs whoever does not bear the token, once a second at most.
func (m *metricsServer) refuse(from string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused++; time.Since(m.said) < time.Second {
		return
	}
	slog.Warn("a request for metrics is refused", "from", from, "why", "it does not bear the token", "others_not_logged",
		m.refused-1)
	m.said, m.refused = time.Now(), 0
}

// Close ends the server, or gives back the address where none was begun.
func (m *metricsServer) Close() error {
	if m.server != nil {
		return m.server.Close()
	}
	return m.listener.Close()
}
