package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// profileSeconds is how long sidehook is profiled; the turn beside it is made longer than that.
	profileSeconds = 5
	// profileLines is how much of a profile is printed.
	profileLines = 30
)

// print shows every way beside the first one of the same round.
func (g *gateBench) print() {
	yardstick := g.ways[0]
	g.out.printf("%d connections, bodies of %d bytes, %d requests a turn, %d rounds in turns; medians; "+
		"processor time in µs a request\n", g.conns, bodyBytes, g.requests, g.pairs)
	rows := []string{"behind Envoy\trequests/s\tof allow-all\tp50 ms\tp99 ms\tgate\tEnvoy\tapp\tload\tall settled after\tother processes"}
	for _, w := range g.ways {
		settled := "-"
		if w.sidehook != nil {
			settled = fmt.Sprintf("%.0f ms", w.median(func(t turn) float64 { return milliseconds(t.settled) }))
		}
		rows = append(rows, fmt.Sprintf("%s\t%.0f\t%.2f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t%.2f cpu", w.name,
			w.rate(), median(ratios(w, yardstick)),
			w.median(func(t turn) float64 { return milliseconds(t.load.P50) }),
			w.median(func(t turn) float64 { return milliseconds(t.load.P99) }),
			w.median(func(t turn) float64 { return microseconds(t.gate) }),
			w.median(func(t turn) float64 { return microseconds(t.envoy) }),
			w.median(func(t turn) float64 { return microseconds(t.app) }),
			w.median(func(t turn) float64 { return microseconds(t.loader) }),
			settled, w.median(func(t turn) float64 { return t.others })))
	}
	g.out.table(rows)
}

// figure adds that of a way: its share of the yardstick's rate.
func (g *gateBench) figure(name string, w *way, least float64) {
	yardstick := g.ways[0]
	each := make([]string, 0, g.pairs)
	for _, ratio := range ratios(w, yardstick) {
		each = append(each, number(ratio))
	}
	g.out.printf("%s of %s, round by round: %s\n", w.name, yardstick.name, strings.Join(each, " "))
	g.out.add(figure{name: name, got: fmt.Sprintf("%.0f/s", w.rate()), yardstick: fmt.Sprintf("allow-all %.0f/s", yardstick.rate()),
		value: median(ratios(w, yardstick)), bound: least, atLeast: true})
}

// ratios compares two ways round by round.
func ratios(w, yardstick *way) []float64 {
	all := make([]float64, len(w.turns))
	for i, t := range w.turns {
		all[i] = t.load.rate() / yardstick.turns[i].load.rate()
	}
	return all
}

func (w *way) median(of func(turn) float64) float64 {
	all := make([]float64, len(w.turns))
	for i, t := range w.turns {
		all[i] = of(t)
	}
	return median(all)
}

func (w *way) rate() float64 { return w.median(func(t turn) float64 { return t.load.rate() }) }

// writeProfile takes a processor profile of a way's sidehook under load, if one is wanted, in a turn of its own so that it weighs
// on no figure.
func (g *gateBench) writeProfile(ctx context.Context, w *way) error {
	if g.profile == "" {
		return nil
	}
	path := filepath.Join(g.profile, strings.ReplaceAll(strings.ReplaceAll(w.name, " ", "-"), ",", "")+".pprof")
	fetched := make(chan error, 1)
	enough := int(w.rate() * profileSeconds * 1.2)
	_, err := g.turn(ctx, w, enough, func() { fetched <- fetchProfile(ctx, w.sidehook.admin, path) })
	if err != nil {
		return fmt.Errorf("profile sidehook: %w", err)
	}
	if err := <-fetched; err != nil {
		return fmt.Errorf("profile sidehook: %w", err)
	}
	top, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", path).Output()
	if err != nil {
		return fmt.Errorf("read the profile: %w", err)
	}
	lines := strings.SplitAfter(string(top), "\n")
	g.out.printf("processor profile of sidehook (%s):\n%s", path, strings.Join(lines[:min(len(lines), profileLines)], ""))
	return nil
}

func fetchProfile(ctx context.Context, admin, path string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, profileSeconds)
	ctx, cancel := context.WithTimeout(ctx, 3*profileSeconds*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := new(http.Client).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, res.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, res.Body)
	return err
}
