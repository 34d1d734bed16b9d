package training

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/job"
)

// An address without a host is this machine alone; one that others reach is refused without a token.
func TestMetricsAreForThisMachineUnlessATokenIsGiven(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("tiny\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		address, token string
		alone          bool
		refused        string
	}{
		{address: ":0", alone: true},
		{address: "localhost:0", alone: true},
		{address: "127.0.0.9:0", alone: true},
		{address: ":0", token: token, alone: true},
		{address: "0.0.0.0:0", token: token},
		{address: "0.0.0.0:0", refused: "give a --token-file"},
		{address: "[::]:0", refused: "give a --token-file"},
		{address: "192.0.2.1:0", refused: "give a --token-file"},
		{address: "example.test:0", refused: "give a --token-file"},
		{address: "0.0.0.0:0", token: short, refused: "one word of 16 characters at least"},
		{address: "0.0.0.0:0", token: "/dev/zero", refused: "is a device"},
		{address: "", token: token, refused: "--token-file"},
		{address: "9090", refused: "give an address like localhost:9090"},
		{address: ":99999999", refused: "give an address like localhost:9090"},
	} {
		m, err := listenForMetrics(&job.Job{Metrics: c.address, TokenFile: c.token})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: got %v, want it to say %q", c.address, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.address, err)
			continue
		}
		if ip := m.listener.Addr().(*net.TCPAddr).IP; ip.IsLoopback() != c.alone {
			t.Errorf("%s: it listens on %v", c.address, ip)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestMetricsNeedTheirToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := listenForMetrics(&job.Job{Metrics: ":0", TokenFile: token})
	if err != nil {
		t.Fatal(err)
	}
	m.serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "loss 1\n")
	}), func(err error) { t.Error(err) })
	defer m.Close()
	for bears, want := range map[string]int{
		"Bearer 0123456789abcdef":  200,
		"":                         401,
		"Bearer 0123456789abcde":   401,
		"Bearer 0123456789abcdef0": 401,
		"0123456789abcdef":         401,
		"Bearer ":                  401,
	} {
		for path, ok := range map[string]int{"/metrics": want, "/": 404} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.listener.Addr().String()+path,
				nil)
			if err != nil {
				t.Fatal(err)
			}
			if bears != "" {
				r.Header.Set("Authorization", bears)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != ok || strings.Contains(string(text), "loss") != (ok == 200) {
				t.Errorf("%s with %q: %d %s", path, bears, answer.StatusCode, text)
			}
		}
	}
}
