package store

import "testing"

func TestNetworkFilesystems(t *testing.T) {
	t.Parallel()
	// From linux/magic.h: what a folder in a pod may lie on, told apart by the number alone.
	for _, tt := range []struct {
		name    string
		magic   uint32
		refused bool
	}{
		{"nfs", 0x6969, true},
		{"smb2", 0xfe534d42, true},
		{"cifs", 0xff534d42, true},
		{"9p", 0x01021997, true},
		{"fuse", 0x65735546, true},
		{"ceph", 0x00c36400, true},
		{"ext4", 0xef53, false},
		{"xfs", 0x58465342, false},
		{"btrfs", 0x9123683e, false},
		{"zfs", 0x2fc12fc1, false},
		{"overlayfs", 0x794c7630, false},
		{"tmpfs", 0x01021994, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, got := networkFilesystems[tt.magic]; got != tt.refused {
				t.Errorf("refused: %v, want %v", got, tt.refused)
			}
		})
	}
}
