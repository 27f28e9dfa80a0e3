package config

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// maxSocketPath is what the kernel has room for, without the final zero byte (unix(7), sun_path).
const maxSocketPath = 107

// reach says from where a listener may be reached.
type reach uint8

const (
	// reachPod is loopback or a Unix socket: whoever is in the pod.
	reachPod reach = iota
	// reachAny is any address.
	reachAny
)

// parseListen checks "host:port" or "unix:/path" and returns it in the form in which two equal ones are equal text.
func parseListen(s string, r reach) (string, error) {
	if socket, ok := strings.CutPrefix(s, "unix:"); ok {
		switch {
		case !path.IsAbs(socket) || path.Clean(socket) != socket:
			return "", fmt.Errorf("write the absolute path of the socket, such as unix:/run/sidehook/%s", "sidehook.sock")
		case len(socket) > maxSocketPath:
			return "", fmt.Errorf("the path of a socket has at most %d bytes", maxSocketPath)
		}
		return s, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%s is no address; write host:port, such as 127.0.0.1:9191, or unix:/path", quote(s))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("%s is no port; write a number up to 65535", quote(port))
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "localhost":
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case host == "" && r == reachAny:
		return net.JoinHostPort("", strconv.FormatUint(n, 10)), nil
	case err != nil && host != "":
		return "", fmt.Errorf("%s is no IP address; names other than localhost are not looked up", quote(host))
	}
	if ip.Zone() != "" {
		return "", fmt.Errorf("%s has a zone, which a listener cannot have", quote(host))
	}
	if r == reachPod && !ip.Unmap().IsLoopback() {
		return "", fmt.Errorf("%s can be reached from outside the pod, and TLS is not in this version; "+
			"write a loopback address such as 127.0.0.1:%d, or unix:/path", quote(s), n)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)).String(), nil
}

// sameListen reports whether both cannot be listened on at once. Port 0 is a free one each time.
func sameListen(a, b string) bool {
	if a == b {
		return !strings.HasSuffix(a, ":0") || strings.HasPrefix(a, "unix:")
	}
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" ||
		strings.HasPrefix(a, "unix:") || strings.HasPrefix(b, "unix:") {
		return false
	}
	return everyAddress(hostA) || everyAddress(hostB)
}

func everyAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || (err == nil && ip.IsUnspecified())
}
