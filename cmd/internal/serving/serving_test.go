package serving

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const secret = "0123456789abcdef"

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An address without a host is only reachable from this machine. An address that other machines can reach is refused
// without a token.
func TestServersAreForThisMachineUnlessATokenIsGiven(t *testing.T) {
	short, token := tokenFile(t, "tiny"), tokenFile(t, secret)
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
		{address: "9090", refused: "--metrics 9090: it has no host and port with a : between; give"},
		{address: ":99999999", refused: "give an address like localhost:9090"},
	} {
		s, err := Listen("metrics", "--metrics", c.address, c.token)
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
		if ip := s.listener.Addr().(*net.TCPAddr).IP; ip.IsLoopback() != c.alone {
			t.Errorf("%s: it listens on %v", c.address, ip)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// serves starts a server with "loss 1" at /metrics.
func serves(t *testing.T, token string) *Server {
	t.Helper()
	s, err := Listen("metrics", "--metrics", ":0", token)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "loss 1\n") })
	s.Serve(mux, func(err error) { t.Error(err) })
	t.Cleanup(func() { s.Close() })
	return s
}

// asks returns a server's answer to a request.
func asks(t *testing.T, c *http.Client, r *http.Request) (code int, text string) {
	t.Helper()
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all)
}

func request(t *testing.T, method, at string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, at, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRequestsNeedTheToken(t *testing.T) {
	s := serves(t, tokenFile(t, secret))
	for bears, want := range map[string]int{
		"Bearer " + secret: 200, "": 401, "Bearer 0123456789abcde": 401, "Bearer " + secret + "0": 401, secret: 401,
		"Bearer ": 401,
	} {
		for _, path := range []string{"metrics", ""} {
			ok := want
			if path == "" && want == 200 {
				ok = 404
			}
			r := request(t, http.MethodGet, s.URL()+path, nil)
			if bears != "" {
				r.Header.Set("Authorization", bears)
			}
			code, text := asks(t, http.DefaultClient, r)
			if code != ok || strings.Contains(text, "loss") != (ok == 200) {
				t.Errorf("/%s with %q: %d %s, want %d", path, bears, code, text, ok)
			}
		}
	}
}

// Without a token a request must use a name of this machine. A page of another site whose name was mapped to this
// machine gets no answer.
func TestRequestsNameThisMachine(t *testing.T) {
	s := serves(t, "")
	for host, want := range map[string]int{
		"127.0.0.1": 200, "localhost": 200, "localhost:8080": 200, "127.0.0.1:1": 200, "[::1]:80": 200, "LOCALHOST": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:80": 421, "192.0.2.1": 421,
		"localhost@evil.example": 421,
	} {
		r := request(t, http.MethodGet, s.URL()+"metrics", nil)
		r.Host = host
		if code, text := asks(t, http.DefaultClient, r); code != want || strings.Contains(text, "loss") != (want == 200) {
			t.Errorf("as %s: %d %s", host, code, text)
		}
	}
}

// A browser is asked for the token once, and redirected to the page it came from, never to another site.
func TestABrowserIsAskedForTheToken(t *testing.T) {
	s := serves(t, tokenFile(t, secret))
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar}
	page := func(path string) (int, string) {
		r := request(t, http.MethodGet, s.URL()+path, nil)
		r.Header.Set("Accept", "text/html,*/*")
		return asks(t, c, r)
	}
	if code, text := page(`metrics?a="><script>`); code != 401 || !strings.Contains(text, `action="/login"`) ||
		strings.Contains(text, "<script>") || strings.Contains(text, secret) {
		t.Fatalf("%d %s", code, text)
	}
	login := func(token, back string) (int, string) {
		r := request(t, http.MethodPost, s.URL()+"login", strings.NewReader(url.Values{"token": {token},
			"back": {back}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return asks(t, c, r)
	}
	if code, text := login("0123456789abcdeF", "/metrics"); code != 401 || !strings.Contains(text, "not the token") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := page("metrics"); code != 401 {
		t.Errorf("with a wrong token: %d %s", code, text)
	}
	if code, text := login(secret, "/metrics"); code != 200 || text != "loss 1\n" {
		t.Errorf("%d %s", code, text)
	}
	if code, text := page("metrics"); code != 200 || text != "loss 1\n" {
		t.Errorf("with the cookie: %d %s", code, text)
	}
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range jar.Cookies(at) {
		if strings.Contains(kept.Value, secret) {
			t.Errorf("the cookie is %s", kept.Value)
		}
	}
	c.Jar, c.CheckRedirect = nil, func(r *http.Request, _ []*http.Request) error {
		if r.URL.Host != at.Host || r.URL.Path != "/" {
			t.Errorf("led to %s", r.URL)
		}
		return http.ErrUseLastResponse
	}
	for _, back := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, "/\t/evil.example", "/\n/evil.example", "evil", ""} {
		if code, text := login(secret, back); code != 303 {
			t.Errorf("back to %q: %d %s", back, code, text)
		}
	}
}
