// Package rendezvous has the processes of a run meet at rank 0 before anything else.
//
// In: connections, one from each other process to rank 0, and what each process says of itself. Out, in every
// process: a Meeting, who is where and how each is reached; the connections go on to be the links by which
// processes agree (run/control). Rank 0 also learns how far each clock is from its own. A host is a name and a
// machine: machines of one name are told apart, as "name#2".
//
// Refused, in every process and with the same reasons: ranks that are missing when the time is over, two processes of
// one rank, worlds of different sizes, facts (plan, data, build) that must be the same and are not, clocks too far
// apart, and a process that is lost before all have met. A Refused says whether another try may help. A stranger alone
// is refused, and does not end the meeting: a process of another run or of an earlier start of this one, or one that
// says no Hello in time.
//
// # Connections
//
// A connection is any net.Conn. Who may come is decided below: Config.Guard is given what a Listener accepts
// and returns the authenticated connection, and Join's dial does so at the other end. Nothing that a stranger
// sends is kept longer than helloWait, and no more strangers at once than maxStrangers: of more, the oldest
// goes.
//
// # Words
//
// A word is its length, four bytes little-endian, and JSON, but for the table, which is bytes. A process says
// Hello; rank 0 measures its clock by a few pings, sends a beat every second with who is missing, then the
// table of all, and when all have it, the word to go. Every word but the last is answered, so that either end
// notices within wordWait that the other is gone. Exactly the words are read, so that what follows on the
// connection is not touched.
//
// # What whoever uses it must do
//
// Give all processes the same Wait; close the Listener afterwards; use or close Meeting.Links. Where Lead or
// Join fails, they have closed every connection.
package rendezvous
