package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sidehook/sidehook/sidecar/envoytest"
)

const (
	// starts is how often a sidehook is started for the time it takes.
	starts = 5
	// idleFor is how long one is left alone before its memory is read: past its first garbage collections and the
	// return of what the start needed.
	idleFor = 10 * time.Second
)

// outwardSection is the outbound half of a sidehook with one endpoint, to which nothing is sent.
func outwardSection() (map[string]any, error) {
	addrs, err := envoytest.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	return map[string]any{"egress": map[string]any{
		"listen": addrs[0],
		"endpoints": []any{map[string]any{
			"id":      "idle",
			"url":     "https://hooks.example.com/in",
			"secrets": []any{map[string]any{"value": hookSecret()}},
		}},
	}}, nil
}

// idle measures a sidehook with both halves that has nothing to do: how soon it is ready and how much memory it holds.
func idle(ctx context.Context, s settings, b bounds, folder string, out *report) error {
	outward, err := outwardSection()
	if err != nil {
		return err
	}
	var ready []float64
	var held sidehookMemory
	for i := range starts {
		config, err := configure(filepath.Join(folder, strconv.Itoa(i)), nil, outward)
		if err != nil {
			return err
		}
		if err := config.start(ctx, s.sidehook); err != nil {
			return err
		}
		ready = append(ready, milliseconds(config.ready))
		if i == starts-1 {
			select {
			case <-ctx.Done():
				return errors.Join(context.Cause(ctx), config.stop())
			case <-time.After(idleFor):
			}
			if held, err = readMemory(config.pid()); err != nil {
				return errors.Join(err, config.stop())
			}
		}
		if err := config.stop(); err != nil {
			return err
		}
	}
	out.printf("ready after %.0f ms in %d starts; idle for %s\n", ready, starts, idleFor)
	out.add(figure{name: "idle, RssAnon", value: mib(held.anon), bound: b.idleAnonMiB, unit: " MiB"})
	out.add(figure{name: "idle, VmRSS", value: mib(held.all), bound: b.idleAllMiB, unit: " MiB"})
	out.add(figure{name: "from start to ready", value: median(ready), bound: b.readyMilliseconds, unit: " ms"})
	return nil
}

// sidehookMemory is what a process holds: of its own (RssAnon), and with the file pages that the kernel may take
// back (VmRSS).
type sidehookMemory struct{ anon, all int64 }

func readMemory(pid int) (m sidehookMemory, err error) {
	if m.anon, err = memory(pid, "RssAnon"); err != nil {
		return m, err
	}
	m.all, err = memory(pid, "VmRSS")
	return m, err
}

// binarySize measures the binary as it is shipped.
func binarySize(_ context.Context, s settings, b bounds, _ string, out *report) error {
	info, err := os.Stat(s.sidehook)
	if err != nil {
		return fmt.Errorf("size of the binary: %w", err)
	}
	out.printf("%s: %d bytes\n", filepath.Base(s.sidehook), info.Size())
	out.add(figure{name: "binary, stripped", value: mib(info.Size()), bound: b.binaryMiB, unit: " MiB"})
	return nil
}
