package launch

import (
	"strings"
	"testing"
)

// Connections are encrypted if the environment says so. If the environment names files with certificates, these are
// used.
func TestTLSIsAskedForByVariables(t *testing.T) {
	world := []string{"MILLRACE_RANK=0", "MILLRACE_WORLD_SIZE=2", "MILLRACE_LOCAL_SIZE=2", "MILLRACE_LOCAL_RANK=0"}
	for _, c := range []struct {
		set  string
		want *TLS
		err  string
	}{
		{"", nil, ""},
		{"MILLRACE_TLS=on", &TLS{}, ""},
		{"MILLRACE_TLS_CERT=c MILLRACE_TLS_KEY=k", &TLS{Certificate: "c", Key: "k"}, ""},
		{"MILLRACE_TLS=on MILLRACE_TLS_CERT=c MILLRACE_TLS_KEY=k MILLRACE_TLS_CA=r",
			&TLS{Certificate: "c", Key: "k", Roots: "r"}, ""},
		{"MILLRACE_TLS=yes", nil, "MILLRACE_TLS=yes; it is on"},
		{"MILLRACE_TLS_CERT=c", nil, "MILLRACE_TLS_KEY is not set"},
		{"MILLRACE_TLS=on MILLRACE_TLS_CA=r", nil, "MILLRACE_TLS_CERT is not set"},
	} {
		w, err := FromEnv(append(world, strings.Fields(c.set)...))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v; want %q", c.set, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.set, err)
			continue
		}
		if (w.TLS == nil) != (c.want == nil) || w.TLS != nil && *w.TLS != *c.want {
			t.Errorf("%q: %+v; want %+v", c.set, w.TLS, c.want)
		}
	}
}
