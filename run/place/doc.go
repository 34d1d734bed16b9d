// Package place gives workers threads and processors, and changes their process while they run.
//
// Input: how many workers compute at once, how many cores they share, and a Policy. Output: a Place. Each worker
// settles in it on its own goroutine. Leave undoes all changes of the process. Without a Policy the only change is that
// goroutines are locked to threads, which engines need. The reason is that a library should not change its host process
// unless the program asks for it.
//
// A Policy with an unknown Binding or an impossible part of the processors is refused. If the kernel refuses something,
// the workers run without it.
//
// A Bell wakes a locked thread without the help of another thread.
package place
