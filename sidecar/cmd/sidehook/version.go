package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build describes this binary as `sidehook version` prints it.
type build struct {
	Version  string `json:"version"`  // a tag, or (devel)
	Commit   string `json:"commit"`   // full hash, or unknown
	Modified bool   `json:"modified"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"` // os/arch
}

// readBuild reads what the Go linker recorded, so that no build needs flags of its own.
func readBuild() build {
	b := build{Version: "(devel)", Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func newVersion(std stdio) *cobra.Command {
	var format outputFlag
	c := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and platform of this binary",
		Args:  args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			if format.structured() {
				return format.print(std.out, b)
			}
			commit := b.Commit
			if b.Modified {
				commit += " (modified)"
			}
			_, err := fmt.Fprintf(std.out, "sidehook %s commit %s %s %s\n", b.Version, commit, b.Go, b.Platform)
			return err
		},
	}
	format.register(c)
	return c
}
