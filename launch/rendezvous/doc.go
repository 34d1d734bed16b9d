// Package rendezvous lets the processes of a run meet at rank 0 before anything else.
//
// In: a connection from each other process to rank 0, and each process's Hello about itself. Out, in every process: a
// Meeting, with the host and address of each process. The connections remain, and become the links over which processes
// agree (run/control). Rank 0 also learns the offset of each clock from its own. A host is identified by name and
// machine. Machines with the same name get different host names, such as "name#2".
//
// The meeting fails in every process, with the same reasons. It fails if a rank is missing when the time is over, if
// two processes have the same rank, or if processes disagree about the size of the run or the version of the words. It
// fails if facts differ that must be equal (plan, data, build), or if clocks are too far apart. It also fails if a
// process is lost before all have met. Refused.Retry says whether another try may help. A stranger is a process of
// another run or of another start of this run, or one that sends no Hello in time. A stranger is refused, but does not
// end the meeting.
//
// # Connections
//
// A connection is any net.Conn. This package does not authenticate. Config.Guard turns an accepted connection into an
// authenticated one, and Join's dial does so at the other end. A stranger is dropped after helloWait. There are at most
// maxStrangers more strangers than processes; if more come, the oldest is dropped.
//
// # Words
//
// A message is called a word. It is a length (four bytes, little-endian) and JSON. Only the table has bytes instead of
// JSON. A process sends Hello. Rank 0 measures the process's clock with a few pings, and sends it a beat with the
// missing ranks every second. When all processes are there, rank 0 sends the table. When all have the table, it sends
// the last word, "go". Every word except the last is answered, so that each end notices within wordWait if the other
// end is gone. Exactly the bytes of the words are read, so that what follows on the connection is left untouched.
//
// # Duties of the caller
//
// Give all processes the same Wait. Use or close Meeting.Links. Lead closes its Listener. If Lead or Join fails, it has
// closed every connection.
package rendezvous
