package store

import (
	"fmt"
	"syscall"
)

// networkFilesystems are the statfs magic numbers (linux/magic.h and the file systems' own headers) of those whose
// locks or syncs depend on another machine or process.
var networkFilesystems = map[uint32]string{
	0x00006969: "nfs",
	0x0000517b: "smb",
	0xfe534d42: "smb",
	0xff534d42: "cifs",
	0x01021997: "9p",
	0x65735546: "fuse",
	0x00c36400: "ceph",
	0x5346414f: "afs",
	0x6b414653: "afs",
	0x73757245: "coda",
	0x0000564c: "ncp",
	0x0bd00bd0: "lustre",
	0x47504653: "gpfs",
	0x7461636f: "ocfs2",
	0x01161970: "gfs2",
	0x19830326: "beegfs",
	0x786f4256: "vboxsf",
}

// inspectVolume returns the size in bytes of the volume under folder.
func inspectVolume(folder string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(folder, &st); err != nil {
		return 0, fmt.Errorf("inspect volume: %w", err)
	}
	if name, ok := networkFilesystems[uint32(st.Type)]; ok {
		return 0, &FilesystemError{Path: folder, Type: name}
	}
	return int64(st.Blocks) * int64(st.Bsize), nil
}
