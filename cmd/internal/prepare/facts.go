package prepare

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/processor"
	"github.com/millrace-ml/millrace/run/place"
)

// Facts describes a process's host.
type Facts struct {
	CPU         string  `json:"cpu"`                  // the processors' model
	Processors  []int   `json:"processors,omitempty"` // processors that the process may use, if known
	Count       int     `json:"count"`                // number of these processors
	Quota       float64 `json:"quota,omitempty"`      // processor time that the process may use, in cores; 0: no limit
	Kernels     string  `json:"kernels,omitempty"`    // vector instructions of millrace's own CPU kernels
	BLAS        string  `json:"blas,omitempty"`       // name of the BLAS library and of its kernels
	Torch       string  `json:"torch,omitempty"`
	Against     string  `json:"against,omitempty"` // version of libtorch that the native library was compiled for
	Device      string  `json:"device"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"` // memory of the host
}

// Own returns the facts of this process. Without libtorch the facts about libtorch are empty.
func Own() Facts {
	f := ownCores()
	if bytes, err := MemoryBytes(); err == nil {
		f.MemoryBytes = bytes["MemTotal"]
	}
	if e, err := torch.Open(); err == nil {
		i := e.Info()
		f.Device, f.Kernels, f.Torch, f.Against = e.DeviceType(), i.Kernels, i.Torch, i.Against
		f.BLAS = strings.TrimSpace(i.BLAS + " " + i.BLASCore)
	}
	return f
}

// ownCores returns only the facts about processors.
func ownCores() Facts {
	f := Facts{CPU: processor.Name(), Processors: place.Allowed(), Count: runtime.NumCPU(), Quota: quota("/"),
		Device: "cpu"}
	if len(f.Processors) > 0 {
		f.Count = len(f.Processors)
	}
	return f
}

// quota returns how much processor time the control groups allow this process, in cores. It is the least limit of the
// process's groups and of the groups above them. If there is no limit, it is 0. `root` is the folder in which proc and
// sys are.
func quota(root string) float64 {
	least := 0.0
	text, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		// A line is "0::/GROUP", or with cgroup version 1 "4:cpu,cpuacct:/GROUP".
		_, of, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(of, ":")
		if controllers != "" && !slices.Contains(strings.Split(controllers, ","), "cpu") {
			continue
		}
		for {
			in := path.Join(root, "sys/fs/cgroup", controllers, group)
			limit, _ := os.ReadFile(path.Join(in, "cpu.max"))
			if controllers != "" {
				time, _ := os.ReadFile(path.Join(in, "cpu.cfs_quota_us"))
				every, _ := os.ReadFile(path.Join(in, "cpu.cfs_period_us"))
				limit = slices.Concat(time, []byte(" "), every)
			}
			if cores := cpuMax(string(limit)); cores > 0 && (least == 0 || cores < least) {
				least = cores
			}
			if group == "/" || group == "." || group == "" {
				break
			}
			group = path.Dir(group)
		}
	}
	return least
}

// cpuMax reads a quota such as "150000 100000": CPU time in each period, both in microseconds. It returns 0 for no
// limit, which is "max" or -1.
func cpuMax(text string) float64 {
	words := strings.Fields(text)
	if len(words) != 2 {
		return 0
	}
	time, err := strconv.ParseFloat(words[0], 64)
	every, wrong := strconv.ParseFloat(words[1], 64)
	if err != nil || wrong != nil || every <= 0 || time <= 0 {
		return 0
	}
	return time / every
}

// Cores returns how many cores a process may use. Other processes may use the same cores.
func (f *Facts) Cores() int {
	if f.Quota > 0 {
		return max(1, min(f.Count, int(math.Floor(f.Quota+0.01))))
	}
	return max(1, f.Count)
}

// Meets reports whether two processes of one host may use some of the same processors. It is true if a process's
// processors are not known.
func (f *Facts) Meets(g *Facts) bool {
	if len(f.Processors) == 0 || len(g.Processors) == 0 {
		return true
	}
	return slices.ContainsFunc(f.Processors, func(n int) bool { return slices.Contains(g.Processors, n) })
}

// Kind describes everything that a worker's speed depends on. `workers` is the number of workers on the process's
// processors. `onHost` is the number of workers on the whole host.
func (f *Facts) Kind(workers, onHost int) string {
	return fmt.Sprintf("%s, %d cores, quota %.2f, kernels %s, BLAS %s, torch %s (%s), device %s, %d of %d workers", f.CPU,
		f.Count, f.Quota, f.Kernels, f.BLAS, f.Torch, f.Against, f.Device, workers, onHost)
}

var (
	noise  = regexp.MustCompile(`\((r|R|tm|TM)\)|@.*| CPU| Processor|[0-9]+-Core`)
	spaces = regexp.MustCompile(`[^a-z0-9.]+`)
)

// TypeName returns a name for a host type: readable words and a digest of its kind.
func (f *Facts) TypeName(kind string) string {
	cpu := strings.Trim(spaces.ReplaceAllString(strings.ToLower(noise.ReplaceAllString(f.CPU, "")), "-"), "-")
	if cpu == "" {
		cpu = f.Device
	}
	const most = 32
	cpu = strings.Trim(cpu[:min(len(cpu), most)], "-")
	sum := sha256.Sum256([]byte(kind))
	return fmt.Sprintf("%s-%dc-%s", cpu, f.Cores(), hex.EncodeToString(sum[:2]))
}
