package harness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// opener returns which of some processes has opened a TCP connection between two loopback addresses, 0 if another one
// has: the kernel knows its socket's inode by the addresses, and a process's descriptors by their inodes.
func opener(from, to net.Addr, pids ...int) (int, error) {
	inode, err := inodeOf(from, to)
	if err != nil {
		return 0, fmt.Errorf("who has the connection from %v to %v: %w", from, to, err)
	}
	socket := fmt.Sprintf("socket:[%d]", inode)
	for _, pid := range pids {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return 0, err
		}
		for _, d := range descriptors {
			if link, err := os.Readlink(d); err == nil && link == socket {
				return pid, nil
			}
		}
	}
	return 0, nil
}

// The kernel's question about one socket, and its answer: sock_diag(7), struct inet_diag_req_v2 and struct
// inet_diag_msg.
const (
	byFamily = 20 // SOCK_DIAG_BY_FAMILY
	header   = unix.SizeofNlMsghdr
	question = 56
	answer   = 72
	room     = 1 << 12
)

// inodeOf asks the kernel for the socket with a local and a remote address. /proc/net/tcp has it, too, and takes 40 ms
// when there are ten thousand connections that have just been closed.
func inodeOf(local, remote net.Addr) (uint32, error) {
	from, ok := local.(*net.TCPAddr)
	to, ok2 := remote.(*net.TCPAddr)
	if !ok || !ok2 || from.IP.To4() == nil || to.IP.To4() == nil {
		return 0, errors.New("harness: no TCP over IPv4")
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	ask := make([]byte, header+question)
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], byFamily)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	of := ask[header:]
	of[0], of[1] = unix.AF_INET, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(of[4:], 1<<1) // established
	binary.BigEndian.PutUint16(of[8:], uint16(from.Port))
	binary.BigEndian.PutUint16(of[10:], uint16(to.Port))
	copy(of[12:], from.IP.To4())
	copy(of[28:], to.IP.To4())
	for n := 48; n < question; n++ {
		of[n] = 0xff // any cookie
	}
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	got := make([]byte, room)
	n, _, err := unix.Recvfrom(fd, got, 0)
	if err != nil {
		return 0, err
	}
	if n >= header+4 && binary.NativeEndian.Uint16(got[4:]) == unix.NLMSG_ERROR {
		return 0, syscall.Errno(-int32(binary.NativeEndian.Uint32(got[header:])))
	}
	if n < header+answer {
		return 0, fmt.Errorf("the kernel answers %d bytes about a socket", n)
	}
	inode := binary.NativeEndian.Uint32(got[header+answer-4:])
	if inode == 0 { // the connection has been closed, and the kernel keeps its addresses for a while
		return 0, syscall.ENOENT
	}
	return inode, nil
}
