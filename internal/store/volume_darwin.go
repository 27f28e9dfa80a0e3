package store

import (
	"fmt"
	"syscall"
)

var networkFilesystems = map[string]bool{
	"nfs": true, "smbfs": true, "afpfs": true, "webdav": true, "ftp": true, "macfuse": true, "osxfuse": true, "fusefs": true,
}

// inspectVolume returns the size in bytes of the volume under folder.
func inspectVolume(folder string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(folder, &st); err != nil {
		return 0, fmt.Errorf("inspect volume: %w", err)
	}
	var name []byte
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	if networkFilesystems[string(name)] {
		return 0, &FilesystemError{Path: folder, Type: string(name)}
	}
	return int64(st.Blocks) * int64(st.Bsize), nil
}
