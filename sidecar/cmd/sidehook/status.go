package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

func newStatus(std stdio) *cobra.Command {
	var admin adminFlags
	var format outputFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what a running sidehook says of itself; exit code 1 if it is not ready",
		Long: `Show what a running sidehook says of itself, through its admin API: version, configuration, store, problems.

Exit code 0 if it is ready, 1 if it is not. Problems (a full disk, missing confirms, a refused reload) do not make it
unready: a fault of webhooks never takes the app out of its Service.`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return status(c.Context(), std, admin, format) },
	}
	admin.register(c)
	format.register(c)
	return c
}

func status(ctx context.Context, std stdio, admin adminFlags, format outputFlag) error {
	client, err := admin.connect()
	if err != nil {
		return err
	}
	s, err := call(ctx, client, client.GetStatus, &inboxv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	if format.structured() {
		err = format.print(std.out, s)
	} else {
		err = printStatus(std, s)
	}
	if err == nil && !s.GetReady() {
		return no(errors.New("not ready"))
	}
	return err
}

func printStatus(std stdio, s *inboxv1.GetStatusResponse) error {
	lines := [][2]string{
		{"version", s.GetVersion()},
		{"started", timeText(s.GetStartTime()) + ", up " + s.GetUptime().AsDuration().Round(time.Second).String()},
		{"ready", yesNo(s.GetReady())},
		{"config", s.GetConfig().GetFile() + ", loaded " + timeText(s.GetConfig().GetLoadTime())},
	}
	if e := s.GetConfig().GetReloadError(); e != "" {
		lines = append(lines, [2]string{"reload", "refused: " + e})
	}
	lines = append(lines, [2]string{"store", storeText(s.GetStore())})
	for _, code := range slices.Sorted(maps.Keys(s.GetProblems())) {
		lines = append(lines, [2]string{"problem", code + ": " + s.GetProblems()[code]})
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(std.out, "%-8s %s\n", l[0], printable(l[1])); err != nil {
			return err
		}
	}
	return nil
}

func storeText(s *inboxv1.StoreStatus) string {
	if s.GetLimitBytes() <= 0 {
		return fmt.Sprintf("%s, %s used", s.GetPath(), bytesText(s.GetUsedBytes()))
	}
	return fmt.Sprintf("%s, %s of %s used (%d%%)", s.GetPath(), bytesText(s.GetUsedBytes()), bytesText(s.GetLimitBytes()),
		s.GetUsedBytes()*100/s.GetLimitBytes())
}

// bytesText is n in the largest binary unit that leaves at least 1.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
