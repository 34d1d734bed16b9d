package document

import (
	"os"
	"sync"
)

// scratch holds the folders for temporary files. A process that is about to end keeps it locked.
var scratch = struct {
	sync.Mutex
	folders map[string]bool
}{folders: map[string]bool{}}

// Scratch creates a folder for temporary files, in the system's temporary folder. The caller calls `remove` to delete
// it. If the process ends first, Abandon deletes it.
func Scratch(prefix string) (dir string, remove func(), err error) {
	scratch.Lock()
	defer scratch.Unlock()
	if dir, err = os.MkdirTemp("", prefix); err != nil {
		return "", nil, err
	}
	scratch.folders[dir] = true
	return dir, func() {
		scratch.Lock()
		defer scratch.Unlock()
		_ = os.RemoveAll(dir)
		delete(scratch.folders, dir)
	}, nil
}

// removeAttempts is how often to try to remove a folder that another goroutine may still write to.
const removeAttempts = 5

// abandonScratch removes every folder for temporary files. No more are made after it.
func abandonScratch() {
	scratch.Lock()
	for dir := range scratch.folders {
		for range removeAttempts {
			if os.RemoveAll(dir) == nil {
				break
			}
		}
	}
}
